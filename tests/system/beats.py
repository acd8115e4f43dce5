"""Schedules that are due every second, and the check that no occurrence is doubled or lost."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import Any

from erelong.clock.instants import parse_instant
from tests.system.client import Client

OF_EACH = 5
SECOND = 1_000_000
YEARS = 10 * 365 * 86400
_LONG = {"kind": "echo", "params": {"sleep": 1.5}}
_POLICIES: dict[str, dict[str, Any]] = {
    "all": {"missed": "all", "catchup": "1h", "overlap": "allow"},
    "once": {"missed": "once", "overlap": "allow"},
    "skip": {"missed": "skip", "overlap": "skip", "job": _LONG},
    "queue": {"overlap": "queue_one", "job": _LONG},
    "replace": {"overlap": "replace", "job": _LONG},
}
BEATS = {
    f"{name}-{number}": {"every": 1, "job": {"kind": "echo"}} | policy
    for name, policy in _POLICIES.items()
    for number in range(OF_EACH)
}


async def put_all(client: Client, schedules: dict[str, dict[str, Any]]) -> None:
    async def put(name: str, schedule: dict[str, Any]) -> None:
        status, answer = await client.ask("PUT", f"/v1/schedules/{name}", schedule)
        assert status in (200, 201), answer

    names = [*schedules]
    for start in range(0, len(names), 50):
        await asyncio.gather(*(put(name, schedules[name]) for name in names[start : start + 50]))


async def check_beats(client: Client) -> Counter[str]:
    """Pause the beats; assert that each occurrence has one job or is counted. Return their numbers by outcome."""
    made = Counter((job["schedule"], job["occurrence"]) for job in await client.list_all())
    outcomes: Counter[str] = Counter()
    assert set(made.values()) == {1}
    for name in BEATS:
        status, paused = await client.ask("POST", f"/v1/schedules/{name}/pause", {})
        assert status == 200
        counts = paused["counts"]
        outcomes.update(counts)
        beaten = _seconds(paused["changed_at"]) - _seconds(paused["created_at"])
        kept = paused["queued"] is not None
        assert sum(counts.values()) + kept == beaten, paused
        stored = await client.list_all(f"schedule={name}")
        assert len(stored) == counts["made"], paused
        if name.startswith("all"):
            assert counts == {"made": beaten, "skipped": 0, "missed": 0}, paused
    return outcomes


def _seconds(text: str) -> int:
    """Return how many whole seconds have passed at an instant."""
    return parse_instant(text, round(time.time() * SECOND), YEARS) // SECOND
