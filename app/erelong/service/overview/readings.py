"""Readings that many clients share: each is made once and kept for as long as its cost is worth."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable

    from erelong.clock.instants import Tick

T = TypeVar("T")

SHARE = 800
"""A reading is repeated at the earliest when this many times its duration have passed: one that is polled all the time
takes 0.13 % of a core.
"""
LONGEST = 60.0
"""Seconds after which a reading is repeated whatever it costs."""
MAX_READINGS = 200


@dataclass(slots=True)
class Reading(Generic[T]):
    """One reading, and until when it is good."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    value: T | None = None
    until: float = float("-inf")


class Readings(Generic[T]):
    """Readings by key. Clients that ask for the same one at the same time wait for one another."""

    def __init__(self, *, tick: Tick, life: float, longest: float = LONGEST) -> None:
        """Keep a reading for `life` seconds, or for up to `longest` if it was costly."""
        self._tick = tick
        self._life = life
        self._longest = longest
        self._kept: dict[Hashable, Reading[T]] = {}

    async def get(self, key: Hashable, make: Callable[[], Awaitable[T]]) -> T:
        """Return the reading of a key; make it if there is none, or if it is too old."""
        reading = self._kept.get(key)
        if reading is None:
            self._make_room()
            reading = self._kept[key] = Reading()
        async with reading.lock:
            began_at = self._tick()
            if reading.value is None or began_at >= reading.until:
                reading.value = await make()
                ended_at = self._tick()
                rest = min(SHARE * (ended_at - began_at), self._longest)
                reading.until = max(began_at + self._life, ended_at + rest)
            return reading.value

    def _make_room(self) -> None:
        """Drop old readings, which may be large, and the oldest one if there are too many others."""
        tick = self._tick()
        for key in [key for key, reading in self._kept.items() if reading.until <= tick and not reading.lock.locked()]:
            del self._kept[key]
        if len(self._kept) >= MAX_READINGS:
            del self._kept[next(iter(self._kept))]
