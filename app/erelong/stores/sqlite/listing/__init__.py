"""Listings and counts, each on one snapshot of the store."""
