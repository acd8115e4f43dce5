"""A job as clients read it, and its callback."""
