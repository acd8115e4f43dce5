"""The HTTP layer under every face: connections, routing, auth, bodies, problems."""
