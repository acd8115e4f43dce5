"""Due jobs: which may start next, and who takes them."""
