"""The services that faces and monitoring use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from erelong.service.factory import JobFactory
from erelong.service.jobs import Jobs
from erelong.service.leases import Leases
from erelong.service.queues import Queues

if TYPE_CHECKING:
    from erelong.engine.engine import Engine


class Services:
    """All services in one object. Callers keep this object and none of its parts, which may be replaced."""

    def __init__(self, *, engine: Engine) -> None:
        self.engine = engine
        self.lifecycle = engine.lifecycle
        self.factory = JobFactory(lanes=engine.lanes, kinds=engine.kinds, config=engine.config)
        self.jobs = Jobs(engine=engine, factory=self.factory)
        self.queues = Queues(engine=engine)
        self.leases = Leases(engine=engine)
