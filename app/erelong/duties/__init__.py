"""How loops run, wake and stop, and how requests wait."""
