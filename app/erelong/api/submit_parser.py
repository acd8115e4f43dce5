"""Parses submitted bodies into new jobs, and checks the fields that many bodies share only once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
from pydantic import ValidationError

from erelong.api.schemas import JobIn, pop_own, read_submission
from erelong.model.conflict import OnConflict
from erelong.model.extras import extras_of
from erelong.model.json_text import trimmed
from erelong.model.submission import NewJob
from erelong.service.factory import callback_queue_of, queue_of
from erelong.web.auth import refuse_foreign
from erelong.web.problems import invalid

if TYPE_CHECKING:
    from erelong.clock.instants import Instant
    from erelong.model.caller import Caller
    from erelong.model.extras import Extras
    from erelong.model.job import Job
    from erelong.service.factory import Template
    from erelong.service.services import Services

MAX_TEMPLATES = 1_000  # 1 KB each
_POLICIES = {None: OnConflict.REJECT} | {policy.value: policy for policy in OnConflict}


class SubmitParser:
    """Parses bodies by `schemas.JobIn`, most of them by a cached template.

    Bodies of one caller without extras share a template if all fields but `Own` are equal. The first of them is fully
    checked, the others only in those fields. An invalid body is parsed in full, which finds the error texts.
    """

    def __init__(self, *, services: Services, max_horizon: float) -> None:
        self._services = services
        self._max_horizon = max_horizon
        self._templates: dict[bytes, Template] = {}

    def read(self, body: Any, now: Instant, caller: Caller) -> NewJob:
        """Return the job that a body describes. Refuse a queue that the caller may not use."""
        if not isinstance(body, dict):
            return self._read_whole(body, now, caller)
        rest = body.copy()
        try:
            own = pop_own(rest, now, self._max_horizon)
        except ValueError:
            return self._read_whole(body, now, caller)
        text = orjson.dumps(rest)
        if caller.name:
            text += caller.name.encode()
        template = self._templates.get(text)
        if template is not None and caller.may_use(template.job.queue):
            job = self._services.factory.from_template(template, own, now)
            if job is not None:
                return tuple.__new__(NewJob, (job, _POLICIES[rest.get("on_conflict")]))
        new_job = self._read_whole(body, now, caller)
        if new_job.job.extras == extras_of(caller.name):
            self._keep(text, new_job.job)
        return new_job

    def _read_whole(self, body: Any, now: Instant, caller: Caller) -> NewJob:
        try:
            submission = read_submission(body, now, self._max_horizon)
        except ValidationError as error:
            raise invalid(error, JobIn, "the job is not valid") from None
        if caller.queues:
            refuse_foreign(caller, "/queue", queue_of(submission))
            if (on_finish := submission.get("on_finish")) is not None:
                refuse_foreign(caller, "/on_finish/queue", callback_queue_of(on_finish))
        on_conflict = submission.get("on_conflict")
        extras: Extras | None = {"submitted_by": caller.name} if caller.name else None
        job = self._services.factory.make(submission, now, extras)
        return NewJob(job, OnConflict(on_conflict)) if on_conflict else NewJob(job)

    def _keep(self, text: bytes, job: Job) -> None:
        if len(self._templates) >= MAX_TEMPLATES:
            self._templates.clear()
        self._templates[trimmed(text)] = self._services.factory.template(job)
