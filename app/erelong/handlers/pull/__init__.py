"""The pull kinds: external workers lease and run their jobs; the service only checks params."""
