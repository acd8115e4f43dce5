"""The client for asyncio. `python -m tests.support.unasync` makes `sync` from all modules but `transport`."""
