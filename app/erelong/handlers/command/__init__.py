"""Kinds that are programs."""
