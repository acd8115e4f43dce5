"""The kind http: webhooks."""
