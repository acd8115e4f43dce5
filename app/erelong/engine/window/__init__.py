"""Brings waiting jobs from the store to their lanes at their due time."""
