"""The jobs that the benchmark submits: toys, and webhooks as applications send them."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import orjson

WEEK = 604_800
URL = "https://app.example/hooks/reminders"
HEADERS = {"X-Tenant": "t-1048"}
ECHO = orjson.dumps(
    {"kind": "echo", "params": {"order": 12345, "text": "remember the milk"}, "delay": WEEK, "queue": "asked"}
)


def payload(index: int) -> dict[str, Any]:
    """Return the JSON that a webhook sends."""
    return {"order": index, "customer": "c-20931", "text": "Your order ships tomorrow.", "channel": ["mail", "sms"]}


def webhook(index: int, load: str, *, url: str = URL, queue: str = "hooks", at: float | None = None) -> bytes:
    """Return a webhook as applications submit it; every third has a key and labels.

    Without `at` it is due at some time of a week that begins in an hour.
    """
    if at is None:
        at = float(int(time.time()) + 3_600 + index * 7_919 % WEEK)
    due = datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z")
    params = {"url": url, "method": "POST", "headers": HEADERS, "json": payload(index)}
    job = {"kind": "http", "queue": queue, "execute_at": due, "params": params}
    if index % 3 == 0:
        job |= {"key": f"{load}-{index}", "labels": {"tenant": f"t-{index % 50}"}}
    return orjson.dumps(job)


def no_op(_: int, __: str, *, queue: str, at: float) -> bytes:
    """Return a job that does nothing."""
    return b'{"queue":"%s","execute_at":%.3f,"kind":"nothing"}' % (queue.encode(), at)
