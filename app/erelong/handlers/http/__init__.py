"""The http kind: webhooks."""
