"""The jobs that the benchmark submits: toys, and webhooks as applications send them."""

from __future__ import annotations

import time

import orjson

WEEK = 604_800
ECHO = orjson.dumps(
    {"kind": "echo", "params": {"order": 12345, "text": "remember the milk"}, "delay": WEEK, "queue": "asked"}
)


def webhook(index: int, load: str) -> bytes:
    """Return a webhook as applications submit it; every third has a key and labels."""
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3_600 + index * 7_919 % WEEK))
    params = {
        "url": "https://app.example/hooks/reminders",
        "method": "POST",
        "headers": {"X-Tenant": "t-1048"},
        "json": {
            "order": index,
            "customer": "c-20931",
            "text": "Your order ships tomorrow.",
            "channel": ["mail", "sms"],
        },
    }
    job = {"kind": "http", "queue": "hooks", "execute_at": at, "params": params}
    if index % 3 == 0:
        job |= {"key": f"{load}-{index}", "labels": {"tenant": f"t-{index % 50}"}}
    return orjson.dumps(job)
