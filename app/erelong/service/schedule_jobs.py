"""Makes the jobs of schedules from their stored submissions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson

from erelong.engine.recurrences.making import offset_of
from erelong.model.extras import read_extras
from erelong.model.ids import draw_tokens
from erelong.settings.queues import RetryPatch

if TYPE_CHECKING:
    from erelong.clock.instants import Instant
    from erelong.model.extras import Extras
    from erelong.model.job import Job
    from erelong.model.schedules.schedule import Schedule
    from erelong.service.factory import JobFactory, Submission, Template

MAX_TEMPLATES: Final = 1_000
MAX_TEXT: Final = 4_096  # bytes of a submission that is worth keeping


class ScheduleJobs:
    """Makes the job of an occurrence as if it were submitted then. Schedules with equal jobs share a template."""

    def __init__(self, *, factory: JobFactory) -> None:
        self._factory = factory
        self._tokens = draw_tokens()
        self._templates: dict[bytes, tuple[Job, Template]] = {}

    def make(self, schedule: Schedule, occurrence: Instant, now: Instant, *, is_triggered: bool = False) -> Job:
        """Make a job. A triggered one is due at once, and marked, because it stands for no occurrence."""
        extras: Extras = {"schedule": schedule.name, "occurrence": occurrence}
        if is_triggered:
            extras["triggered"] = True
        if schedule.by:
            extras["submitted_by"] = schedule.by
        execute_at = occurrence if is_triggered else occurrence + offset_of(schedule)
        template = self._template(schedule.definition.job, now)
        params, labels, token = template.params, template.labels, next(self._tokens)
        job = template.alike(params=params, execute_at=execute_at, now=now, token=token, key=None, labels=labels)
        return job.with_extras({**read_extras(template.extras), **extras})

    def check(self, text: bytes, now: Instant) -> None:
        """Raise `Invalid` if a submit of this job would be refused."""
        self._factory.make(read_job(text), now)

    def _template(self, text: bytes, now: Instant) -> Job:
        """Return a job made of this submission by its kind and under the settings of its queue as they are now."""
        job, template = self._templates.get(text, (None, None))
        if job is None or template is None or not self._factory.is_current(template):
            job = self._factory.make(read_job(text), now)
            if len(self._templates) >= MAX_TEMPLATES:
                self._templates.clear()
            if len(text) <= MAX_TEXT:
                self._templates[text] = job, self._factory.template(job)
        return job


def read_job(text: bytes) -> Submission:
    """Return the submission that a schedule holds as JSON text."""
    fields: dict[str, Any] = orjson.loads(text)
    if "retry" in fields:
        fields["retry"] = RetryPatch.model_validate(fields["retry"])
    submission: Submission = fields  # type: ignore[assignment]  # it was written from one
    return submission
