"""The commands that run until they are stopped: the screen, the stream of events, the receiver of webhooks."""
