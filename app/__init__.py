"""erelong: a delayed-task service. A job is posted with a time, runs then, and can always be asked about."""

__version__ = "0.1.0"
