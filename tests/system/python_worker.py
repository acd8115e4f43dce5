"""A worker as a user would write it, in a process that may be killed at any moment: python python_worker.py <log>.

It records the end of every call, in one write.
"""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import sys
import time

from erelong import Attempt, RetryAfter, Worker
from erelong.client.drafts import RetryPolicy

RETRY: RetryPolicy = {"max_attempts": 1_000, "delay": 0.1, "factor": 1.0}
LONGEST = 0.06

worker = Worker(concurrency=4, lease=1.0, drain=1.0)
log = -1


def end(attempt: Attempt, n: int) -> dict[str, object]:
    """Fail now and then; otherwise record this call, and return its number."""
    if random.random() < 0.05:
        raise RetryAfter(0.1, "no luck")
    call = secrets.token_hex(8)
    os.write(log, f"{attempt.id} {call} {os.getpid()}\n".encode())
    return {"n": n, "call": call}


@worker.kind("thread", retry=RETRY)
def in_thread(attempt: Attempt, n: int) -> dict[str, object]:
    time.sleep(random.uniform(0.0, LONGEST))
    return end(attempt, n)


@worker.kind("loop", retry=RETRY)
async def on_loop(attempt: Attempt, n: int) -> dict[str, object]:
    await asyncio.sleep(random.uniform(0.0, LONGEST))
    return end(attempt, n)


if __name__ == "__main__":
    log = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    raise SystemExit(worker.run(register=True))
