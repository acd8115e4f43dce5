"""The log, the metrics, and what neither may show."""
