"""Kinds that are Python functions, on the loop or in a thread."""
