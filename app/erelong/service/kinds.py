"""The kinds with their jobs and workers, and the pull kinds that clients declare while the service runs."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson
from pydantic import ValidationError

from erelong.clock.instants import SECOND
from erelong.errors import Fault, Invalid, KindFixed, KindNotFound, StoreFailed, StoreUnavailable, TooMany
from erelong.handlers.examples import with_example
from erelong.handlers.kinds import Origin
from erelong.handlers.pull.declaration import make_declared_kind
from erelong.handlers.pull.rules import find_faults
from erelong.model.caller import ANYBODY, Caller
from erelong.model.document import Document
from erelong.model.job import State
from erelong.settings.bounds import time_faults
from erelong.settings.kinds import KindSettings
from erelong.telemetry.log import get_logger

if TYPE_CHECKING:
    from erelong.clock.instants import Instant
    from erelong.engine.engine import Engine
    from erelong.handlers.kinds import Kind
    from erelong.service.overview.due import Due

SORT: Final = "kind"
PAGE: Final = 500
MAX_KINDS: Final = 1_000
MAX_SCHEMAS: Final = 1_048_576  # bytes of all declared schemas, which the OpenAPI document contains
OVERRULED: Final = "config.toml declares it too, and wins; DELETE /v1/kinds/{0} forgets the stored declaration"

log = get_logger(__name__)


class KindCounts(NamedTuple):
    """Jobs of a kind: due and not started, waiting (the due ones included), and failed."""

    due: int
    waiting: int
    failed: int


class KindState(NamedTuple):
    """A kind with its jobs. A pull kind has the workers that wait for its jobs, and the end of the last such wait."""

    kind: Kind
    counts: KindCounts
    polling: int | None
    last_polled_at: Instant | None


class PullKinds:
    """All operations on kinds. A declared kind is a stored document; its version counts the declarations.

    After a write with an unknown result, the document is read again by the next operation.
    """

    def __init__(self, *, engine: Engine, due: Due) -> None:
        self._engine = engine
        self._store = engine.store
        self._kinds = engine.kinds
        self._due = due
        self._overruled: set[str] = set()
        self._doubted: set[str] = set()
        self._writing = asyncio.Lock()

    async def load(self) -> None:
        """Declare the stored kinds, except those that the settings declare."""
        after, page = "", PAGE
        try:
            while page == PAGE:
                documents = await self._store.documents(SORT, after=after, limit=PAGE)
                for document in documents:
                    self._apply(document.name, document)
                page = len(documents)
                after = documents[-1].name if documents else after
        except StoreUnavailable as problem:
            raise problem.exit or StoreFailed(problem.detail) from problem

    async def all(self, caller: Caller = ANYBODY) -> list[KindState]:
        """Return all kinds, with the jobs of the queues that the caller may use."""
        await self._settle()
        return await self._states([*self._kinds.values()], caller)

    async def get(self, name: str, caller: Caller = ANYBODY) -> KindState:
        await self._settle()
        return (await self._states([self._find(name)], caller))[0]

    async def put(self, name: str, settings: KindSettings, caller: Caller = ANYBODY) -> tuple[KindState, bool]:
        """Declare a pull kind, or replace its declaration; return it and whether it is new."""
        async with self._writing:
            await self._reread()
            before = self._kinds.get(name)
            if before is not None:
                _refuse_fixed(before)
            kind = self._make(name, settings)
            self._refuse_too_many(kind)
            if before is None or _definition(before) != _definition(kind):
                await self._write(name, orjson.dumps(_definition(kind)))
                self._kinds.declare(kind)
                log.info("kind_declared", kind=name, by=caller.name)
        return (await self._states([self._kinds[name]], caller))[0], before is None

    async def drop(self, name: str, caller: Caller = ANYBODY) -> int:
        """Forget a declared kind; return how many of its jobs wait until it is declared again."""
        async with self._writing:
            await self._reread()
            if name not in self._overruled:
                _refuse_fixed(self._find(name))
            await self._write(name, None)
            self._apply(name, None)
            log.info("kind_dropped", kind=name, by=caller.name)
        self._engine.pollers.wake_all(name)
        return 0 if name in self._kinds else self._counted(frozenset())[name, State.SCHEDULED]

    # declarations

    def _find(self, name: str) -> Kind:
        kind = self._kinds.get(name)
        if kind is None:
            raise KindNotFound(f"no kind {name!r}; known kinds: {', '.join(self._kinds)}")
        return kind

    def _make(self, name: str, settings: KindSettings) -> Kind:
        faults = [fault.under("/params_schema") for fault in _faults_of(settings)]
        faults += time_faults(self._engine.config.jobs, settings.timeout, settings.retry)
        if faults:
            raise Invalid("the kind is not valid", faults=faults)
        return with_example(make_declared_kind(name, settings))

    def _refuse_too_many(self, kind: Kind) -> None:
        others = [other for other in self._kinds.values() if other.declared is Origin.API and other.name != kind.name]
        if len(others) >= MAX_KINDS:
            raise TooMany(f"{len(others)} kinds are declared over HTTP, and that is the limit; delete some")
        size = sum(len(orjson.dumps(each.params_schema)) for each in (*others, kind))
        if size > MAX_SCHEMAS:
            raise TooMany(
                f"the schemas of all kinds declared over HTTP would take {size} bytes, and the limit is {MAX_SCHEMAS}; "
                "delete some kinds, or describe less"
            )

    def _apply(self, name: str, document: Document | None) -> None:
        """Make a kind what its stored document says."""
        known = self._kinds.get(name)
        is_fixed = known is not None and known.declared is not Origin.API
        self._overruled.discard(name)
        if document is None or document.text is None:
            if known is not None and not is_fixed:
                self._kinds.withdraw(name)
        elif is_fixed:
            self._overruled.add(name)
            log.warning("kind_overruled", kind=name, remedy=OVERRULED.format(name))
        else:
            try:
                self._kinds.declare(self._make(name, KindSettings(pull=True, **orjson.loads(document.text))))
            except (Invalid, ValidationError, ValueError, TypeError) as error:
                log.error("kind_unreadable", kind=name, problem=str(error))

    async def _write(self, name: str, text: bytes | None) -> None:
        stored = await self._store.document(SORT, name)
        version = 1 if stored is None else stored.version + 1
        now = self._engine.now()
        try:
            await self._store.add([], now=now, beside=[Document(SORT, name, version, now, text)])
        except BaseException:
            self._doubted.add(name)
            raise

    async def _settle(self) -> None:
        if self._doubted:
            async with self._writing:
                await self._reread()

    async def _reread(self) -> None:
        """Apply the stored declarations after failed writes."""
        for name in [*self._doubted]:
            document = await self._store.document(SORT, name)
            self._doubted.discard(name)
            self._apply(name, document)

    # states

    async def _states(self, kinds: list[Kind], caller: Caller) -> list[KindState]:
        counted = self._counted(caller.queues)
        waiting = [kind.name for kind in kinds if counted[kind.name, State.SCHEDULED]]
        due = await self._due.of_kinds(waiting, caller.queues)
        return [self._state(kind, counted, due.get(kind.name, 0), caller) for kind in kinds]

    def _state(self, kind: Kind, counted: Counter[tuple[str, State]], due: int, caller: Caller) -> KindState:
        waiting = counted[kind.name, State.SCHEDULED]
        counts = KindCounts(min(due, waiting), waiting, counted[kind.name, State.FAILED])
        if not kind.is_pull:
            return KindState(kind, counts, None, None)
        pollers, now = self._engine.pollers, self._engine.now()
        ago = pollers.last_poll(kind.name, caller.queues)
        polled_at = None if ago is None else now - round(ago * SECOND)
        return KindState(kind, counts, pollers.workers(kind.name, caller.queues), polled_at)

    def _counted(self, queues: frozenset[str]) -> Counter[tuple[str, State]]:
        """Return the jobs by kind and state, of these queues (none: all)."""
        counted: Counter[tuple[str, State]] = Counter()
        for (queue, kind, state), jobs in dict(self._store.counts()).items():
            if not queues or queue in queues:
                counted[kind, state] += jobs
        return counted


def _refuse_fixed(kind: Kind) -> None:
    match kind.declared:
        case Origin.BUILT_IN:
            raise KindFixed(f"kind {kind.name!r} is built in, so no request declares or deletes it")
        case Origin.CONFIG:
            remedy = "change it there and restart"
            raise KindFixed(f"kind {kind.name!r} is declared in config.toml, which no request changes; {remedy}")


def _faults_of(settings: KindSettings) -> list[Fault]:
    return find_faults(settings.params_schema) if isinstance(settings.params_schema, dict) else []


def _definition(kind: Kind) -> dict[str, Any]:
    retry = None if kind.retry is None else kind.retry.model_dump(exclude_none=True)
    fields = {"params_schema": kind.params_schema, "timeout": kind.timeout, "retry": retry}
    return {name: value for name, value in fields.items() if value is not None}
