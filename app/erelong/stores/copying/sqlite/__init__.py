"""The embedded database as the source and as the target of a copy."""
