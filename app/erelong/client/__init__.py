"""The Python client: jobs, queues, schedules, operations and events over HTTP, an executor, and pull workers.

Its public names are imported from `erelong`. It needs only the standard library; `erelong[async]` adds `AsyncClient`
and `Worker`. Parts without I/O (`calls`, `retries`, `records`) stand below `aio` and `sync`,
which send what they decide.
"""
