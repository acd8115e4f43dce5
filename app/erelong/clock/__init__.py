"""Time: instants and durations, and what a loop sleeps on."""
