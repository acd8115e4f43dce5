"""Each call of the service as a function that returns its request."""
