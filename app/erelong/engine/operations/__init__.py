"""The duty that carries out operations on many jobs."""
