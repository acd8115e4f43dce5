"""What may start next, and who takes it."""
