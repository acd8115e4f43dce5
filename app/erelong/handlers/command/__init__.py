"""Kinds that run programs."""
