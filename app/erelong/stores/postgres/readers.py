"""The reader threads: each has a connection, which it restores when it is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from erelong.stores.group_thread import Call, in_runs, run_as_one
from erelong.stores.postgres.connection import Connection, connect
from erelong.stores.postgres.failures import FailureKind, as_problem, described, diagnose
from erelong.telemetry.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Sequence

log = get_logger(__name__)


class Reading:
    """The work of a reader thread, which has none between groups."""

    def __init__(self, *, url: str, role: str, by_number: bool, patience: float) -> None:
        self._url = url
        self._role = role
        self._by_number = by_number
        self._patience = patience
        self._connection: Connection | None = None

    @property
    def connection(self) -> Connection:
        """The connection; only for the thread that runs this work."""
        if self._connection is None:
            self._connection = connect(self._url, role=self._role, by_number=self._by_number, patience=self._patience)
        return self._connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.drop()
            self._connection = None

    def run(self, group: Sequence[Call]) -> None:
        for calls in in_runs([call for call in group if not call.future.done()]):
            self._run(calls)

    def rest(self) -> None:
        return None

    def _run(self, calls: Sequence[Call]) -> None:
        try:
            _run(calls)
        except Exception as error:  # noqa: BLE001 - any error is the answer to these calls
            self._run_again(error, calls)

    def _run_again(self, error: Exception, calls: Sequence[Call]) -> None:
        """Repeat reads once, on a new connection if it was lost, and one by one."""
        if diagnose(error) is FailureKind.SESSION:
            log.warning("reader_disconnected", role=self._role, problem=described(error))
            self.close()
        for call in calls:
            try:
                call.run()
            except Exception as second:  # noqa: BLE001 - as above
                if diagnose(second) is FailureKind.SESSION:
                    self.close()
                call.error = as_problem(second)


def _run(calls: Sequence[Call]) -> None:
    if len(calls) == 1:
        calls[0].run()
    else:
        run_as_one(calls)
