"""The PostgreSQL store: what it alone does."""
