"""Conditions on one job."""
