"""The events of stored changes, kept for a while in one ring for all readers."""
