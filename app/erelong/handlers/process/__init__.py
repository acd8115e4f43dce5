"""Kinds that run in worker processes."""
