"""The page at `/` for people who run the service. It uses only the public API."""
