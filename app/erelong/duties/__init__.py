"""Background loops and waiting requests: how they start, wake and stop."""
