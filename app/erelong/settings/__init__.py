"""The settings: names, types, bounds, defaults and sources."""
