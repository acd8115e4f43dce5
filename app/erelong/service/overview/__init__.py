"""Overviews of many jobs, which are read from the store."""
