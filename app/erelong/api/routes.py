"""The route table of version 1, with the scope that each route needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from erelong.api.batches import BatchRoutes
from erelong.api.clock import ClockRoutes
from erelong.api.events.stream import EventRoutes
from erelong.api.jobs import JobRoutes
from erelong.api.openapi import Document
from erelong.api.operations import OperationRoutes
from erelong.api.ops import OpsRoutes
from erelong.api.overview.listings import ListingRoutes
from erelong.api.overview.reports import OverviewRoutes
from erelong.api.queues import QueueRoutes
from erelong.api.route import Route
from erelong.api.schedules import ScheduleRoutes
from erelong.api.schemas import BatchIn, CancelIn, EmptyIn, JobIn, PatchIn, RetryIn, WaitIn
from erelong.api.shapes.clock import ClockIn
from erelong.api.shapes.event_shapes import EventsIn
from erelong.api.shapes.kind_shapes import KindIn
from erelong.api.shapes.lease_bodies import ExtendIn, FailIn, FinishIn, LeaseIn
from erelong.api.shapes.operation_bodies import ListOperationsIn, OperationIn, ReadOperationIn
from erelong.api.shapes.overview_queries import DueIn, ErrorsIn, StatsIn
from erelong.api.shapes.queries import DryRunIn, ListIn, NameIn, PatchQueryIn, ReadIn
from erelong.api.shapes.queue_bodies import ListQueuesIn, PauseQueueIn
from erelong.api.shapes.schedule_bodies import (
    BackfillIn,
    ListSchedulesIn,
    PauseScheduleIn,
    PreviewIn,
    ScheduleIn,
    SchedulePatchIn,
    TriggerIn,
)
from erelong.api.submit_parser import SubmitParser
from erelong.api.waits import WaitRoutes
from erelong.api.workers.kinds import KindRoutes
from erelong.api.workers.leases import LeaseRoutes
from erelong.errors import (
    BacklogFull,
    BadCursor,
    BadHeader,
    ClockBackwards,
    ClockBusy,
    Draining,
    IdempotencyMismatch,
    JobNotFound,
    KeyTaken,
    KindFixed,
    KindNotFound,
    LeaseLost,
    LeaseNotFound,
    NotLeading,
    OperationNotFound,
    Overlaps,
    QueueInUse,
    QueueNotFound,
    ScheduleNotFound,
    StorageFull,
    StoreUnavailable,
    TooMany,
    VersionMismatch,
    WrongState,
)
from erelong.model.caller import ANY_KEY, Need, Scope
from erelong.settings.queues import QueueSettings
from erelong.web.body import Bodies
from erelong.web.face import Face
from erelong.web.problems import ProblemRenderer

if TYPE_CHECKING:
    from erelong.clock.instants import Now
    from erelong.monitoring.gauges import Gauges
    from erelong.monitoring.health import Health
    from erelong.monitoring.statistics.stats import Statistics
    from erelong.service.services import Services
    from erelong.settings.sections import Config
    from erelong.telemetry.metrics import Metrics
    from erelong.web.auth import KeyGate

READ, SUBMIT, CANCEL, WORK, ADMIN = Scope.READ, Scope.SUBMIT, Scope.CANCEL, Scope.WORK, Scope.ADMIN
ACTS = frozenset({SUBMIT, CANCEL})
OPEN = None
FILL = "Make the jobs of past occurrences"
WHY = "Explain why a job has not run, and when it is likely to"
JOB = "/v1/jobs/{id}"  # or ~ and a key
BATCH = "/v1/jobs/batch"

ON_STANDBY = frozenset({*("/v1/jobs", JOB, "/v1/me"), *("/livez", "/readyz", "/metrics", "/openapi.json", "/docs")})
"""Paths whose GET needs no part of the engine, so that a node answers it that does not lead."""

READS = (StoreUnavailable, NotLeading)
LISTS = (*READS, BadCursor)
ASKS = (*READS, BadHeader, JobNotFound)
WRITES = (StoreUnavailable, NotLeading, StorageFull)
SUBMITS = (*WRITES, BadHeader, JobNotFound, KeyTaken, IdempotencyMismatch, BacklogFull, Draining)
STEPS = (*WRITES, BadHeader, JobNotFound, WrongState, VersionMismatch)
SETS = (*WRITES, QueueNotFound)
DROPS = (*SETS, QueueInUse)
LENDS = (*WRITES, Draining)
HOLDS = (*WRITES, LeaseNotFound, LeaseLost)
RUNS = (*STEPS, Draining)
MOVES = (*WRITES, ClockBusy, ClockBackwards, Draining)
REVIVES = (*RUNS, KeyTaken)
FINDS = (*READS, BadHeader, ScheduleNotFound)
EDITS = (*WRITES, BadHeader, ScheduleNotFound, VersionMismatch)
RESUMES = (*EDITS, Draining)
PUTS = (*RESUMES, TooMany)
TRIGGERS = (*WRITES, BadHeader, ScheduleNotFound, JobNotFound, Overlaps, IdempotencyMismatch, BacklogFull, Draining)
FILLS = (*WRITES, BadHeader, ScheduleNotFound, OperationNotFound, IdempotencyMismatch, TooMany, Draining)
STARTS = (*WRITES, BadHeader, OperationNotFound, IdempotencyMismatch, TooMany, Draining)
KNOWS = (*READS, OperationNotFound)
STOPS = (*WRITES, OperationNotFound)


def routes(
    *,
    jobs: JobRoutes,
    batches: BatchRoutes,
    waits: WaitRoutes,
    queues: QueueRoutes,
    leases: LeaseRoutes,
    schedules: ScheduleRoutes,
    operations: OperationRoutes,
    events: EventRoutes,
    kinds: KindRoutes,
    ops: OpsRoutes,
    overview: OverviewRoutes,
    listings: ListingRoutes,
    clock: ClockRoutes | None,
    open_metrics: bool,
) -> list[Route]:
    """Return the table. A scope of None means that no key is needed. Any other path is a 404."""
    return [
        *_of_overview(overview),  # before the jobs: no job is named errors
        Route("GET", "/v1/jobs", READ, listings.jobs, "List jobs", "200 Jobs", LISTS, query=ListIn),
        *_of_jobs(jobs, batches),
        Route("POST", "/v1/jobs/wait", READ, waits.jobs, "Wait for many jobs", "200 Waited", READS, WaitIn),
        *_of_queues(queues),
        *_of_leases(leases),
        *_of_schedules(schedules),
        *_of_operations(operations),
        Route("GET", "/v1/events", READ, events.read, "Follow events", "200 Events", (*READS, TooMany), query=EventsIn),
        *(() if clock is None else _of_clock(clock)),
        *_of_kinds(kinds),
        *_of_operators(ops, OPEN if open_metrics else READ),
    ]


def _of_jobs(jobs: JobRoutes, batches: BatchRoutes) -> list[Route]:
    return [
        Route("POST", "/v1/jobs", SUBMIT, jobs.create, "Submit a job", "201 200 Job", SUBMITS, JobIn, DryRunIn),
        Route("POST", BATCH, SUBMIT, batches.create, "Submit jobs", "201 200 Tickets", SUBMITS, BatchIn, DryRunIn),
        Route("GET", JOB, READ, jobs.read, "Read a job, or wait for it", "200 304 Job", ASKS, query=ReadIn),
        Route("GET", f"{JOB}/explain", READ, jobs.explain, WHY, "200 Explanation", ASKS, query=NameIn),
        Route("PATCH", JOB, SUBMIT, jobs.patch, "Change a scheduled job", "200 Job", STEPS, PatchIn, PatchQueryIn),
        Route("DELETE", JOB, CANCEL, jobs.delete, "Delete a job that is not running", "204", STEPS, query=NameIn),
        Route("POST", f"{JOB}/cancel", CANCEL, jobs.cancel, "Cancel a job", "200 202 Job", STEPS, CancelIn, NameIn),
        Route("POST", f"{JOB}/run", SUBMIT, jobs.run, "Make a job due now", "200 Job", RUNS, EmptyIn, NameIn),
        Route("POST", f"{JOB}/retry", SUBMIT, jobs.retry, "Retry a job", "200 Job", REVIVES, RetryIn, NameIn),
    ]


def _of_queues(queues: QueueRoutes) -> list[Route]:
    queue = "/v1/queues/{queue}"
    return [
        Route("GET", "/v1/queues", READ, queues.list, "List queues", "200 Queues", LISTS, query=ListQueuesIn),
        Route("GET", queue, READ, queues.read, "Read a queue", "200 Queue", (*READS, QueueNotFound)),
        Route("PUT", queue, ADMIN, queues.put, "Override queue settings", "200 Queue", SETS, QueueSettings, DryRunIn),
        Route("DELETE", queue, ADMIN, queues.drop, "Remove the override of a queue", "204", DROPS),
        Route("POST", f"{queue}/pause", ADMIN, queues.pause, "Pause a queue", "200 Queue", SETS, PauseQueueIn),
        Route("POST", f"{queue}/resume", ADMIN, queues.resume, "Resume a queue", "200 Queue", SETS, EmptyIn),
        Route("POST", f"{queue}/purge", CANCEL, queues.purge, "Cancel all waiting jobs", "200 Purged", SETS, EmptyIn),
    ]


def _of_leases(leases: LeaseRoutes) -> list[Route]:
    lease = "/v1/leases/{token}"
    return [
        Route("POST", "/v1/leases", WORK, leases.acquire, "Lease jobs of pull kinds", "200 Leases", LENDS, LeaseIn),
        Route("POST", f"{lease}/extend", WORK, leases.extend, "Extend a lease", "200 Extended", HOLDS, ExtendIn),
        Route("POST", f"{lease}/finish", WORK, leases.finish, "Finish a leased job", "200 Job", HOLDS, FinishIn),
        Route("POST", f"{lease}/fail", WORK, leases.fail, "Fail a leased job", "200 Job", HOLDS, FailIn),
        Route("POST", f"{lease}/release", WORK, leases.release, "Release a lease", "200 Job", HOLDS, EmptyIn),
    ]


def _of_kinds(kinds: KindRoutes) -> list[Route]:
    every, one = "/v1/kinds", "/v1/kinds/{kind}"
    put, drop = kinds.put, kinds.drop
    return [
        Route("GET", every, READ, kinds.list, "List kinds and their schemas", "200 Kinds", READS),
        Route("GET", one, READ, kinds.read, "Read a kind", "200 Kind", (*READS, KindNotFound)),
        Route("PUT", one, ADMIN, put, "Declare a pull kind", "201 200 Kind", (*WRITES, KindFixed, TooMany), KindIn),
        Route("DELETE", one, ADMIN, drop, "Forget a pull kind", "200 Dropped", (*WRITES, KindNotFound, KindFixed)),
    ]


def _of_clock(clock: ClockRoutes) -> list[Route]:
    return [
        Route("GET", "/v1/clock", READ, clock.read, "Read the virtual clock", "200 Clock", READS),
        Route("POST", "/v1/clock", ADMIN, clock.move, "Move the virtual clock", "200 Move", MOVES, ClockIn),
    ]


def _of_schedules(schedules: ScheduleRoutes) -> list[Route]:
    every, one = "/v1/schedules", "/v1/schedules/{schedule}"
    put, patch, pause, resume = schedules.put, schedules.patch, schedules.pause, schedules.resume
    trigger, preview, fill = schedules.trigger, schedules.preview, schedules.backfill
    return [
        Route("GET", every, READ, schedules.list, "List schedules", "200 Schedules", LISTS, query=ListSchedulesIn),
        Route("GET", one, READ, schedules.read, "Read a schedule", "200 304 Schedule", FINDS),
        Route("PUT", one, SUBMIT, put, "Create or replace a schedule", "201 200 Schedule", PUTS, ScheduleIn, DryRunIn),
        Route("PATCH", one, SUBMIT, patch, "Change a schedule", "200 Schedule", RESUMES, SchedulePatchIn),
        Route("DELETE", one, CANCEL, schedules.delete, "Forget a schedule", "204", EDITS),
        Route("POST", f"{one}/pause", CANCEL, pause, "Pause a schedule", "200 Schedule", EDITS, PauseScheduleIn),
        Route("POST", f"{one}/resume", SUBMIT, resume, "Resume a schedule", "200 Schedule", RESUMES, EmptyIn),
        Route("POST", f"{one}/trigger", SUBMIT, trigger, "Make a job now", "201 200 Job", TRIGGERS, TriggerIn),
        Route("POST", f"{one}/backfill", SUBMIT, fill, FILL, "202 200 Operation", FILLS, BackfillIn, DryRunIn),
        Route("GET", f"{one}/preview", READ, preview, "Preview occurrences", "200 Preview", FINDS, query=PreviewIn),
    ]


def _of_operations(operations: OperationRoutes) -> list[Route]:
    every, one = "/v1/operations", "/v1/operations/{operation}"
    create, stop = operations.create, operations.cancel
    return [
        Route("POST", every, ACTS, create, "Change many jobs", "202 200 Operation", STARTS, OperationIn, DryRunIn),
        Route("GET", every, READ, operations.list, "List operations", "200 Operations", LISTS, query=ListOperationsIn),
        Route("GET", one, READ, operations.read, "Read an operation", "200 Operation", KNOWS, query=ReadOperationIn),
        Route("POST", f"{one}/cancel", ACTS, stop, "Stop an operation", "200 Operation", STOPS, EmptyIn),
    ]


def _of_overview(overview: OverviewRoutes) -> list[Route]:
    now, errors = "Read what the service does now, and did", "Group errors by cause"
    return [
        Route("GET", "/v1/me", ANY_KEY, overview.me, "Read what this API key may do", "200 Me"),
        Route("GET", "/v1/stats", READ, overview.stats, now, "200 304 Stats", READS, query=StatsIn),
        Route("GET", "/v1/due", READ, overview.due, "Count waiting jobs by due time", "200 Due", READS, query=DueIn),
        Route("GET", "/v1/jobs/errors", READ, overview.errors, errors, "200 Causes", READS, query=ErrorsIn),
    ]


def _of_operators(ops: OpsRoutes, metrics: Need | None) -> list[Route]:
    return [
        Route("GET", "/livez", OPEN, ops.livez, "Check that the process is alive", "200 Live"),
        Route("GET", "/readyz", OPEN, ops.readyz, "Check that the service takes work", "200 503 Ready"),
        Route("GET", "/metrics", metrics, ops.metrics, "Read the metrics for Prometheus", "200 Text"),
        Route("GET", "/openapi.json", OPEN, ops.openapi, "Read this document", "200 Any"),
        Route("GET", "/docs", OPEN, ops.docs, "Open a page to read and try the API", "200 Page"),
    ]


def make_face(
    *,
    services: Services,
    config: Config,
    gate: KeyGate,
    health: Health,
    gauges: Gauges,
    statistics: Statistics,
    metrics: Metrics,
    now: Now,
) -> Face:
    limits, timeout = config.limits, config.server.body_timeout
    bodies = Bodies(limits=limits, timeout=timeout)
    parser = SubmitParser(services=services, max_horizon=config.jobs.max_horizon)
    jobs = JobRoutes(services=services, parser=parser, bodies=bodies, config=config, now=now)
    batches = BatchRoutes(
        services=services, parser=parser, bodies=bodies, jobs=jobs, gate=gate, limits=limits, timeout=timeout, now=now
    )
    document, clock = Document(kinds=services.engine.kinds), services.clock
    document.routes = routes(
        jobs=jobs,
        batches=batches,
        waits=WaitRoutes(services=services, bodies=bodies, gate=gate, limits=limits),
        queues=QueueRoutes(services=services, bodies=bodies, statistics=statistics, config=config),
        leases=LeaseRoutes(services=services, bodies=bodies, jobs=jobs, config=config),
        schedules=ScheduleRoutes(services=services, bodies=bodies, jobs=jobs, config=config, now=now),
        operations=OperationRoutes(services=services, bodies=bodies, config=config, now=now),
        events=EventRoutes(services=services, gate=gate),
        kinds=KindRoutes(services=services, bodies=bodies),
        ops=OpsRoutes(health=health, gauges=gauges, metrics=metrics, document=document, gate=gate),
        overview=OverviewRoutes(services=services, gate=gate, statistics=statistics, config=config, now=now),
        listings=ListingRoutes(services=services, config=config, now=now),
        clock=None if clock is None else ClockRoutes(clock=clock, bodies=bodies, config=config, now=now),
        open_metrics=config.auth.open_metrics,
    )
    return Face(prefix="", routes=document.served(), gate=gate, renderer=ProblemRenderer(jobs=jobs))
