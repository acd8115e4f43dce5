"""What readers of `/v1/events` learn: events, and the filters that select them."""
