"""The stores by name; makes the configured one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from erelong.stores.memory import MemoryStore

if TYPE_CHECKING:
    from erelong.settings.sections import StoreSection
    from erelong.stores.base import Store
    from erelong.telemetry.metrics import GroupTimer


def make_store(section: StoreSection, timer: GroupTimer | None = None) -> Store:
    """Make the configured store. `timer` times its commits, if it has any."""
    if section.kind == "memory":
        return MemoryStore()
    from erelong.stores.sqlite.store import SqliteStore  # loads its library only if used

    return SqliteStore(
        path=Path(section.path),
        durability=section.durability,
        reserve=section.reserve,
        timeout=section.timeout,
        timer=timer,
    )
