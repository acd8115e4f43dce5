"""The files beside the embedded database: its lock, its mark, its reserve and the claims."""
