"""The operations on jobs, queues and leases."""
