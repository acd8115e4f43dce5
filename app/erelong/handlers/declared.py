"""Makes the kinds that the settings declare."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from erelong.handlers.command.runner import make_command_kind
from erelong.handlers.process.pool import ProcessPool
from erelong.handlers.process.runner import make_process_kind
from erelong.handlers.process.supervisor_client import IS_SUPPORTED, ProcessEnvironment, SupervisorClient
from erelong.handlers.pull.declaration import make_pull_kind
from erelong.handlers.python.runner import make_python_kind
from erelong.handlers.python.signature import InvalidKind

if TYPE_CHECKING:
    from erelong.handlers.kinds import Kind
    from erelong.settings.kinds import KindSettings
    from erelong.settings.sections import Config


class DeclaredKinds:
    """Makes kinds. All processes share one supervisor; kinds with equal environments share one process pool."""

    def __init__(self, *, config: Config) -> None:
        self._config = config
        self._processes = SupervisorClient()
        self._pools: dict[tuple[object, ...], ProcessPool] = {}

    def make(self, name: str, kind: KindSettings) -> Kind:
        """Make one kind; raise InvalidKind when its declaration cannot run."""
        if kind.pull:
            return make_pull_kind(name=name, schema=kind.params_schema)
        if kind.python is not None and kind.isolation != "process":
            return make_python_kind(name=name, path=kind.python, isolation=kind.isolation)
        if not IS_SUPPORTED:
            raise InvalidKind(f"processes need Linux, and this is {sys.platform}: use another isolation")
        process_environment = ProcessEnvironment(
            environment=kind.environment or {},
            directory=None if kind.directory is None else str(kind.directory.resolve()),
            memory=kind.memory,
        )
        if kind.command is not None:
            return make_command_kind(
                name=name,
                command=kind.command,
                patterns=kind.params,
                processes=self._processes,
                process_environment=process_environment,
                grace=self._config.workers.grace,
            )
        assert kind.python is not None
        return make_process_kind(name=name, path=kind.python, pool=self._pool(process_environment))

    def _pool(self, process_environment: ProcessEnvironment) -> ProcessPool:
        key = (*sorted(process_environment.environment.items()), process_environment.memory)
        if key not in self._pools:
            self._pools[key] = ProcessPool(
                processes=self._processes,
                process_environment=process_environment,
                size=self._config.workers.processes or len(os.sched_getaffinity(0)),
                grace=self._config.workers.grace,
                max_result=self._config.limits.max_result,
            )
        return self._pools[key]
