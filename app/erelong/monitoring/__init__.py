"""What operators see of a running service."""
