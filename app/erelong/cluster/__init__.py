"""Several nodes on one store: which of them leads, and the writes that wait until one does."""
