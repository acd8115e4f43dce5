"""Stores: the protocol, and the two implementations."""
