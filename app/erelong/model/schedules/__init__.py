"""Schedules: their stored form, and every decision about them as a pure function."""
