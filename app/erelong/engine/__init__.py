"""Moves jobs from their due time to a worker, and their outcomes to the disk."""
