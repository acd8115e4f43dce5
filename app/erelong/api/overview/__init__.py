"""Routes that show many jobs and what the service does, for screens and command lines."""
