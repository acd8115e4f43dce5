"""What can be asked about jobs, queues and leases."""
