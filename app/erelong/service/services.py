"""The services that faces and monitoring use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from erelong.engine.operations.backfill import Backfill
from erelong.engine.operations.book import Book as OperationsBook
from erelong.engine.operations.duty import Operations as OperationsDuty
from erelong.engine.operations.slices import Slices
from erelong.engine.recurrences.book import Book
from erelong.engine.recurrences.duty import Recurrences
from erelong.engine.recurrences.making import Making
from erelong.engine.recurrences.rules import Rules
from erelong.service.blockers import Blockers
from erelong.service.clock import Clock
from erelong.service.events import Events
from erelong.service.explain import Explain
from erelong.service.factory import JobFactory
from erelong.service.jobs import Jobs
from erelong.service.kinds import PullKinds
from erelong.service.leases import Leases
from erelong.service.operations.backfills import Backfills
from erelong.service.operations.changes import JobChanger
from erelong.service.operations.operations import Operations
from erelong.service.overview.causes import Failures
from erelong.service.overview.due import Due
from erelong.service.overview.listings import Listings
from erelong.service.overview.upcoming import Upcoming
from erelong.service.queues import Queues
from erelong.service.room import Room
from erelong.service.schedule_jobs import ScheduleJobs
from erelong.service.schedules import Schedules
from erelong.service.waits import Waits

if TYPE_CHECKING:
    from erelong.clock.virtual import VirtualClock
    from erelong.engine.engine import Engine


class Services:
    """All services in one object. Callers keep this object and none of its parts, which may be replaced."""

    def __init__(self, *, engine: Engine, virtual: VirtualClock | None = None) -> None:
        self.engine = engine
        self.lifecycle = engine.lifecycle
        self.factory = JobFactory(
            lanes=engine.lanes, kinds=engine.kinds, config=engine.config, zones=engine.zone_source
        )
        self.jobs = Jobs(engine=engine, factory=self.factory)
        self.listings = Listings(engine=engine)
        self.upcoming = Upcoming(engine=engine)
        self.blockers = Blockers(engine=engine)
        self.explain = Explain(engine=engine, jobs=self.jobs, blockers=self.blockers, clock=virtual)
        self.waits = Waits(engine=engine)
        self.events = Events(engine=engine)
        self.queues = Queues(engine=engine)
        jobs = ScheduleJobs(factory=self.factory)
        self.recurrences = _recurrences(engine, jobs)
        engine.enlist(self.recurrences, self.recurrences.aside)
        engine.zone_changes.followers.append(self.recurrences)
        self.schedules = Schedules(engine=engine, recurrences=self.recurrences, jobs=jobs)
        duty = _operations(engine, self.factory, self.recurrences, jobs)
        engine.enlist(duty, duty.aside)
        self.operations = Operations(engine=engine, duty=duty)
        self.due = Due(engine=engine)
        self.kinds = PullKinds(engine=engine, due=self.due)
        self.failures = Failures(engine=engine)
        self.backfills = Backfills(
            engine=engine, recurrences=self.recurrences, schedules=self.schedules, operations=self.operations
        )
        self.leases = Leases(engine=engine)
        self.clock = (
            None if virtual is None else Clock(engine=engine, leases=self.leases, operations=duty, clock=virtual)
        )


def _operations(engine: Engine, factory: JobFactory, recurrences: Recurrences, jobs: ScheduleJobs) -> OperationsDuty:
    """Build the duty of operations, which changes jobs as clients change them."""
    slices = Slices(
        store=engine.store,
        changes=engine.changes,
        dispatcher=engine.dispatcher,
        changer=JobChanger(factory=factory, max_horizon=engine.config.jobs.max_horizon),
        now=engine.now,
        tick=engine.tick,
    )
    backfill = Backfill(
        store=engine.store,
        book=recurrences.book,
        rules=recurrences.rules,
        maker=jobs,
        room=Room(engine=engine),
        changes=engine.changes,
        now=engine.now,
    )
    return OperationsDuty(
        store=engine.store,
        book=OperationsBook(store=engine.store),
        slices=slices,
        changes=engine.changes,
        backfill=backfill,
        waiters=engine.waiters,
        lifecycle=engine.lifecycle,
        metrics=engine.metrics,
        now=engine.now,
        tick=engine.tick,
    )


def _recurrences(engine: Engine, jobs: ScheduleJobs) -> Recurrences:
    """Build the duty of schedules, which makes jobs as clients submit them."""
    book = Book(store=engine.store, live_again=engine.lanes.departures.live_again)
    rules = Rules(zones=engine.zone_source.current)
    making = Making(
        store=engine.store,
        book=book,
        rules=rules,
        maker=jobs,
        room=Room(engine=engine),
        backlog=engine.backlog,
        lanes=engine.lanes,
        changes=engine.changes,
        dispatcher=engine.dispatcher,
        metrics=engine.metrics,
        now=engine.now,
    )
    return Recurrences(
        book=book,
        rules=rules,
        making=making,
        waiters=engine.waiters,
        lifecycle=engine.lifecycle,
        metrics=engine.metrics,
        timer=engine.clock.make_timer(),
        now=engine.now,
    )
