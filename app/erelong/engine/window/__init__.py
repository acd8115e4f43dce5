"""What brings waiting jobs from the store to their lanes, each at its time."""
