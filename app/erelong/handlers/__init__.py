"""The kinds of work."""
