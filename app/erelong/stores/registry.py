"""The stores by name, and the way to make the configured one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from erelong.stores.memory import MemoryStore

if TYPE_CHECKING:
    from erelong.settings.sections import StoreSection
    from erelong.stores.base import Store
    from erelong.telemetry.metrics import GroupTimer


def make_store(section: StoreSection, timer: GroupTimer | None = None) -> Store:
    """`timer` is told of each commit, if the store has any."""
    if section.kind == "memory":
        return MemoryStore()
    from erelong.stores.sqlite.store import SqliteStore  # its library is loaded only by those who use it

    return SqliteStore(
        path=Path(section.path),
        durability=section.durability,
        reserve=section.reserve,
        timeout=section.timeout,
        timer=timer,
    )
