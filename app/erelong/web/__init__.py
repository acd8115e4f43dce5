"""What every face stands on: connections, routing, auth, bodies, problems."""
