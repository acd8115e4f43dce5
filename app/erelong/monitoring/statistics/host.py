"""What the process takes from its machine: CPU, memory, disk, and how promptly loop and disk respond."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from erelong.monitoring.statistics.totals import p99_of

if TYPE_CHECKING:
    from pathlib import Path

    from erelong.telemetry.metrics import Metrics

_PAGE = os.sysconf("SC_PAGE_SIZE")
_STATM = "/proc/self/statm"


class Host(NamedTuple):
    """The figures of the process and its disk; None where the machine does not tell."""

    cpu: float
    rss: int | None
    loop_lag_p99: float | None
    commit_p99: float | None
    store_bytes: int | None
    disk_free: int | None
    connections: int
    streams: int


class HostGauges:
    """Reads the figures. CPU, lag and commits are those of the last whole step."""

    def __init__(self, *, metrics: Metrics, path: Path | None) -> None:
        self._metrics = metrics
        self._path = path
        self._sampled_at: float | None = None
        self._cpu_time = time.process_time()
        self._cpu = 0.0
        self._lag_p99: float | None = None
        self._commit_p99: float | None = None
        self._lags = tuple(metrics.lag.counts())
        self._commits = tuple(metrics.commit_time.counts())

    def sample(self, tick: float) -> None:
        """Close a step."""
        cpu_time = time.process_time()
        if self._sampled_at is not None and tick > self._sampled_at:
            self._cpu = round((cpu_time - self._cpu_time) / (tick - self._sampled_at), 3)
        self._sampled_at, self._cpu_time = tick, cpu_time
        self._lag_p99, self._lags = p99_of(self._metrics.lag, self._lags)
        self._commit_p99, self._commits = p99_of(self._metrics.commit_time, self._commits)

    def read(self) -> Host:
        return Host(
            cpu=self._cpu,
            rss=_rss(),
            loop_lag_p99=self._lag_p99,
            commit_p99=self._commit_p99,
            store_bytes=self._store_bytes(),
            disk_free=self._disk_free(),
            connections=int(sum(self._metrics.connections.values.values())),
            streams=int(sum(self._metrics.streams.values.values())),
        )

    def _store_bytes(self) -> int | None:
        if self._path is None:
            return None
        size = 0
        for path in (self._path, self._path.with_name(self._path.name + "-wal")):
            with suppress(OSError):  # there is no WAL before the first write
                size += path.stat().st_size
        return size

    def _disk_free(self) -> int | None:
        if self._path is None:
            return None
        with suppress(OSError):
            disk = os.statvfs(self._path.parent)
            return disk.f_bavail * disk.f_frsize
        return None


def _rss() -> int | None:
    """Return the resident memory in bytes."""
    with suppress(OSError, ValueError), open(_STATM, encoding="ascii") as statm:
        return int(statm.read().split()[1]) * _PAGE
    return None
