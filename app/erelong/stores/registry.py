"""The stores by name; makes the configured one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from erelong.errors import PlaceRefused
from erelong.stores.memory import MemoryStore

if TYPE_CHECKING:
    from erelong.settings.sections import Config
    from erelong.stores.base import Store
    from erelong.telemetry.metrics import GroupTimer


def make_store(config: Config, timer: GroupTimer | None = None, *, is_virtual: bool = False) -> Store:
    """Make the configured store. `timer` times its commits, if it has any; `is_virtual` marks its file."""
    section = config.store
    if section.kind == "memory":
        return MemoryStore()
    if section.kind == "postgres":
        try:
            from erelong.stores.postgres.store import PostgresStore  # loads its library only if used
        except ModuleNotFoundError as error:
            reason = f'[store] kind is "postgres", but {error.name} is not installed'
            raise PlaceRefused(f"{reason}: pip install 'erelong[server,postgres]'") from error
        url = section.url.get_secret_value()
        return PostgresStore(
            url=url,
            durability=section.durability,
            must_exist=section.must_exist,
            timeout=section.timeout,
            timer=timer,
            is_virtual=is_virtual,
            may_lead=config.cluster.lead,
            ttl=config.cluster.ttl,
        )
    from erelong.stores.sqlite.store import SqliteStore  # loads its library only if used

    return SqliteStore(
        path=Path(section.path),
        durability=section.durability,
        reserve=section.reserve,
        timeout=section.timeout,
        timer=timer,
        is_virtual=is_virtual,
    )
