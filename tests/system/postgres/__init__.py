"""Real services on a real PostgreSQL server."""
