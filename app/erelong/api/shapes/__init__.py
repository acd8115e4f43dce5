"""The bodies and views of parts of the API, and the schemas that they share."""
