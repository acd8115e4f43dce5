"""Parses submitted bodies into new jobs, and checks the fields that many bodies share only once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
from pydantic import ValidationError

from erelong.api.schemas import JobIn, pop_time, read_submission
from erelong.model.conflict import OnConflict
from erelong.model.json_text import trimmed
from erelong.model.submission import NewJob
from erelong.service.factory import queue_of
from erelong.web.auth import refuse_foreign
from erelong.web.problems import invalid

if TYPE_CHECKING:
    from erelong.clock.instants import Instant
    from erelong.model.caller import Caller
    from erelong.model.job import Job
    from erelong.service.factory import Template
    from erelong.service.services import Services

MAX_TEMPLATES = 1_000  # 1 KB each
_REJECT = OnConflict.REJECT  # an enum looks its members up in Python: 50 ns


class SubmitParser:
    """Parses bodies by `schemas.JobIn`, most of them by a cached template.

    Bodies with equal fields, except `params` and the time, share a template. The first of them is fully checked. For
    the others only `params` and the time are checked. An unusual or invalid body is parsed in full, which finds the
    error texts.
    """

    def __init__(self, *, services: Services, max_horizon: float) -> None:
        self._services = services
        self._max_horizon = max_horizon
        self._templates: dict[bytes, Template] = {}

    def read(self, body: Any, now: Instant, caller: Caller) -> NewJob:
        """Return the job that a body describes. Refuse a queue that the caller may not use."""
        if not isinstance(body, dict) or "key" in body or "labels" in body:  # such bodies rarely share a template
            return self._read_whole(body, now, caller)
        rest = body.copy()
        params = rest.pop("params", None)
        try:
            execute_at = pop_time(rest, now, self._max_horizon)
        except ValueError:
            return self._read_whole(body, now, caller)
        text = orjson.dumps(rest)
        template = self._templates.get(text)
        if template is not None and (params is None or isinstance(params, dict)) and caller.may_use(template.job.queue):
            job = self._services.factory.from_template(template, params, execute_at, now)
            if job is not None:
                return tuple.__new__(NewJob, (job, _REJECT))
        new_job = self._read_whole(body, now, caller)
        self._keep(text, new_job.job)
        return new_job

    def _read_whole(self, body: Any, now: Instant, caller: Caller) -> NewJob:
        try:
            submission = read_submission(body, now, self._max_horizon)
        except ValidationError as error:
            raise invalid(error, JobIn, "the job cannot be taken") from None
        if caller.queues:
            refuse_foreign(caller, "/queue", queue_of(submission))
        on_conflict = submission.get("on_conflict")
        job = self._services.factory.make(submission, now)
        return NewJob(job, OnConflict(on_conflict)) if on_conflict else NewJob(job)

    def _keep(self, text: bytes, job: Job) -> None:
        if len(self._templates) >= MAX_TEMPLATES:
            self._templates.clear()
        self._templates[trimmed(text)] = self._services.factory.template(job)
