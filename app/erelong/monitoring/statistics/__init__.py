"""What the service does now and did in the last day, read from counters that exist anyway."""
