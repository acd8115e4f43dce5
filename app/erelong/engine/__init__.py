"""What moves jobs: from their due time to a worker, and their outcome to the disk."""
