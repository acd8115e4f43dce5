"""Time: instants, durations and the wall-clock timer."""
