"""An executor of `concurrent.futures` whose calls are durable jobs."""
