"""The two logs of the database, claims and tallies: each is kept short by continuing in its other, emptied half."""

from __future__ import annotations

from typing import TYPE_CHECKING

from erelong.stores.postgres import statements as sql
from erelong.stores.postgres.arrays import bigints, ints
from erelong.stores.postgres.writing import Part, transact

if TYPE_CHECKING:
    from collections.abc import Mapping

    from erelong.model.job import Job
    from erelong.stores.postgres.session import WriteSession

# A long read, such as a backup, may hold the half that is to be emptied; then the log grows until the next time. While
# this waits, all reads of that half wait behind it.
_SHORT_WAIT: Part = ("SET LOCAL lock_timeout = '20ms'", [])


def fold_tallies(session: WriteSession) -> None:
    """Add the tallies of the current half to the counts, and continue in the other one."""
    current, other = session.tallies_half, 1 - session.tallies_half
    parts: list[Part] = [
        _SHORT_WAIT,
        (f"TRUNCATE tallies_{other}", []),
        (sql.FOLD_TALLIES.format(half=f"tallies_{current}"), []),
        (sql.DROP_EMPTY_COUNTS, []),
        (sql.NOTE_FOLD, [other, session.acknowledged]),
    ]
    _turn(session, parts)
    session.tallies_half = other


def turn_claims(session: WriteSession, node: str, running: Mapping[int, Job]) -> None:
    """Copy the valid claims to the other half and continue there. The current half is emptied at the next turn."""
    other = 1 - session.claims_half
    jobs = running.values()
    copied = [
        node,
        bigints([job.seq for job in jobs]),
        ints([job.version for job in jobs]),
        bigints([job.started_at for job in jobs]),
    ]
    parts: list[Part] = [
        _SHORT_WAIT,
        (f"TRUNCATE claims_{other}", []),
        (sql.INSERT_CLAIMS.format(half=f"claims_{other}", fence=""), copied),
        (sql.NOTE_CLAIMS_HALF, [other]),
    ]
    _turn(session, parts)
    session.claims_half = other


def _turn(session: WriteSession, parts: list[Part]) -> None:
    """Run a transaction once. If its result is unknown, the next connection reads which half is current."""
    session.once(lambda connection: transact(connection, session.epoch, parts))
