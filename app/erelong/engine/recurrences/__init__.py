"""Schedules at work: when each is due, and the jobs of its occurrences."""
