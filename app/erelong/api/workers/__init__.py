"""Routes of external workers: leases, and kinds that they declare."""
