"""Pull workers: they lease jobs, run functions on the loop or in threads, extend the leases and report the outcomes."""
