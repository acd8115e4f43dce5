"""The stream of events: its route, and the text of each event."""
