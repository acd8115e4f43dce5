"""Listings and counts, each in one snapshot."""
