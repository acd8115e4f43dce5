"""The HTTP surface: shapes, routes, problems."""
