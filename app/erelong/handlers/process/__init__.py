"""Kinds that run in worker processes, and the supervisor of all processes."""
