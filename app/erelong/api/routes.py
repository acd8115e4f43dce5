"""The route table of version 1, with the scope that each route needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from erelong.api.batches import BatchRoutes
from erelong.api.jobs import JobRoutes
from erelong.api.leases import LeaseRoutes
from erelong.api.openapi import Document
from erelong.api.ops import OpsRoutes
from erelong.api.queues import QueueRoutes
from erelong.api.route import Route
from erelong.api.schemas import (
    BatchIn,
    CancelIn,
    EmptyIn,
    ExtendIn,
    FailIn,
    FinishIn,
    JobIn,
    LeaseIn,
    ListIn,
    NameIn,
    PatchIn,
    ReadIn,
)
from erelong.api.submit_parser import SubmitParser
from erelong.errors import (
    BacklogFull,
    BadCursor,
    BadHeader,
    Draining,
    IdempotencyMismatch,
    JobNotFound,
    KeyTaken,
    LeaseLost,
    LeaseNotFound,
    QueueInUse,
    QueueNotFound,
    StorageFull,
    StoreUnavailable,
    VersionMismatch,
    WrongState,
)
from erelong.model.caller import Scope
from erelong.settings.queues import QueueSettings
from erelong.web.body import Bodies
from erelong.web.face import Face
from erelong.web.problems import ProblemRenderer

if TYPE_CHECKING:
    from erelong.clock.instants import Now
    from erelong.monitoring.gauges import Gauges
    from erelong.monitoring.health import Health
    from erelong.service.services import Services
    from erelong.settings.sections import Config
    from erelong.telemetry.metrics import Metrics
    from erelong.web.auth import KeyGate

READ, SUBMIT, CANCEL, WORK, ADMIN = Scope.READ, Scope.SUBMIT, Scope.CANCEL, Scope.WORK, Scope.ADMIN
OPEN = None
JOB = "/v1/jobs/{id}"  # or ~ and a key

READS = (StoreUnavailable,)
ASKS = (*READS, BadHeader, JobNotFound)
WRITES = (StoreUnavailable, StorageFull)
SUBMITS = (*WRITES, BadHeader, JobNotFound, KeyTaken, IdempotencyMismatch, BacklogFull, Draining)
STEPS = (*WRITES, BadHeader, JobNotFound, WrongState, VersionMismatch)
SETS = (*WRITES, QueueNotFound)
DROPS = (*SETS, QueueInUse)
LENDS = (*WRITES, Draining)
HOLDS = (*WRITES, LeaseNotFound, LeaseLost)
RUNS = (*STEPS, Draining)
REVIVES = (*RUNS, KeyTaken)


def routes(
    *,
    jobs: JobRoutes,
    batches: BatchRoutes,
    queues: QueueRoutes,
    leases: LeaseRoutes,
    ops: OpsRoutes,
    open_metrics: bool,
) -> list[Route]:
    """Return the table. A scope of None means that no key is needed. Any other path is a 404."""
    return [
        *_of_jobs(jobs, batches),
        *_of_queues(queues),
        *_of_leases(leases),
        *_of_operators(ops, OPEN if open_metrics else READ),
    ]


def _of_jobs(jobs: JobRoutes, batches: BatchRoutes) -> list[Route]:
    return [
        Route("POST", "/v1/jobs", SUBMIT, jobs.create, "Submit a job", "201 200 Job", SUBMITS, JobIn),
        Route("POST", "/v1/jobs/batch", SUBMIT, batches.create, "Submit jobs", "201 200 Tickets", SUBMITS, BatchIn),
        Route("GET", "/v1/jobs", READ, jobs.list, "List jobs", "200 Jobs", (*READS, BadCursor), query=ListIn),
        Route("GET", JOB, READ, jobs.read, "Read a job, or wait for it", "200 304 Job", ASKS, query=ReadIn),
        Route("PATCH", JOB, SUBMIT, jobs.patch, "Change a scheduled job", "200 Job", STEPS, PatchIn, NameIn),
        Route("DELETE", JOB, CANCEL, jobs.delete, "Delete a job that is not running", "204", STEPS, query=NameIn),
        Route("POST", f"{JOB}/cancel", CANCEL, jobs.cancel, "Cancel a job", "200 202 Job", STEPS, CancelIn, NameIn),
        Route("POST", f"{JOB}/run", SUBMIT, jobs.run, "Make a job due now", "200 Job", RUNS, EmptyIn, NameIn),
        Route("POST", f"{JOB}/retry", SUBMIT, jobs.retry, "Retry a job", "200 Job", REVIVES, EmptyIn, NameIn),
    ]


def _of_queues(queues: QueueRoutes) -> list[Route]:
    queue = "/v1/queues/{queue}"
    return [
        Route("GET", "/v1/queues", READ, queues.list, "List queues", "200 Queues", READS),
        Route("GET", queue, READ, queues.read, "Read a queue", "200 Queue", (*READS, QueueNotFound)),
        Route("PUT", queue, ADMIN, queues.put, "Override the settings of a queue", "200 Queue", SETS, QueueSettings),
        Route("DELETE", queue, ADMIN, queues.drop, "Remove the override of a queue", "204", DROPS),
        Route("POST", f"{queue}/pause", ADMIN, queues.pause, "Pause a queue", "200 Queue", SETS, EmptyIn),
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


def _of_operators(ops: OpsRoutes, metrics: Scope | None) -> list[Route]:
    return [
        Route("GET", "/v1/kinds", READ, ops.kinds, "List kinds and their schemas", "200 Kinds"),
        Route("GET", "/livez", OPEN, ops.livez, "Check that the process is alive", "200 Live"),
        Route("GET", "/readyz", OPEN, ops.readyz, "Check that the service takes work", "200 503 Ready"),
        Route("GET", "/metrics", metrics, ops.metrics, "Read the metrics for Prometheus", "200 Text"),
        Route("GET", "/openapi.json", OPEN, ops.openapi, "Read this document", "200 Any"),
        Route("GET", "/docs", OPEN, ops.docs, "Open a page to read and try the API", "200 Page"),
    ]


def make_face(
    *, services: Services, config: Config, gate: KeyGate, health: Health, gauges: Gauges, metrics: Metrics, now: Now
) -> Face:
    bodies = Bodies(limits=config.limits, timeout=config.server.body_timeout)
    parser = SubmitParser(services=services, max_horizon=config.jobs.max_horizon)
    jobs = JobRoutes(services=services, parser=parser, bodies=bodies, config=config, now=now)
    document = Document(kinds=services.engine.kinds)
    document.routes = routes(
        jobs=jobs,
        batches=BatchRoutes(
            services=services,
            parser=parser,
            bodies=bodies,
            jobs=jobs,
            gate=gate,
            limits=config.limits,
            timeout=config.server.body_timeout,
            now=now,
        ),
        queues=QueueRoutes(services=services, bodies=bodies, config=config),
        leases=LeaseRoutes(services=services, bodies=bodies, jobs=jobs, limits=config.limits),
        ops=OpsRoutes(services=services, health=health, gauges=gauges, metrics=metrics, document=document, gate=gate),
        open_metrics=config.auth.open_metrics,
    )
    served = [route.served() for route in document.routes]
    return Face(prefix="", routes=served, gate=gate, renderer=ProblemRenderer(jobs=jobs))
