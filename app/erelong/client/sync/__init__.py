"""The client that blocks. All modules but `transport` are made from `aio` by `python -m tests.support.unasync`."""
