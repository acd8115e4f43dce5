"""Edits of schedules."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest

from erelong.model.schedules import edits
from erelong.model.schedules.schedule import Counts, Overlap, Reason
from tests.support.scheduled import MINUTE, make_definition, make_schedule
from tests.support.virtual import EPOCH

NOW = EPOCH + 3 * MINUTE


def test_new_schedule_begins_strictly_after_now() -> None:
    schedule = edits.create("report", make_definition(), NOW, "app")

    assert (schedule.cursor, schedule.version, schedule.row, schedule.by) == (NOW, 1, 0, "app")


def test_same_definition_changes_nothing() -> None:
    schedule = make_schedule()

    assert edits.redefine(schedule, make_definition(), NOW) is schedule


def test_other_definition_begins_now_and_keeps_the_history_and_a_pause() -> None:
    schedule = make_schedule(progress={"counts": Counts(3, 2, 1), "is_paused": True, "reason": "x"})

    after = edits.redefine(schedule, make_definition(spread=5.0), NOW)

    assert (after.cursor, after.changed_at, after.version) == (NOW, NOW, 2)
    assert (after.counts, after.is_paused, after.reason) == (Counts(3, 2, 1), True, "x")


@pytest.mark.parametrize(("overlap", "queued"), [(Overlap.QUEUE_ONE, EPOCH), (Overlap.SKIP, None)])
def test_kept_occurrence_is_dropped_with_its_policy(overlap: Overlap, queued: int | None) -> None:
    schedule = make_schedule(overlap=Overlap.QUEUE_ONE, progress={"queued": EPOCH, "live": ("id",)})

    after = edits.redefine(schedule, make_definition(overlap=overlap, spread=5.0), NOW)

    assert (after.queued, after.live) == (queued, ("id",))
    assert [line.reason for line in after.recent] == ([] if queued else [Reason.EDITED])


def test_pause_and_resume_count_as_versions_only_if_they_change_something() -> None:
    schedule = make_schedule()
    paused = edits.pause(schedule, "x", NOW)

    assert edits.pause(paused, "x", NOW) is paused
    assert edits.pause(paused, "y", NOW).version == 3
    assert edits.resume(schedule, NOW) is schedule
    resumed = edits.resume(paused, NOW + MINUTE)
    assert (resumed.version, resumed.cursor, resumed.reason) == (3, NOW + MINUTE, None)


@pytest.mark.parametrize(
    ("given", "after"),
    [
        ({"every": 60.0}, {"every": 60.0, "cron": None, "zone": None, "gap": None, "fold": None}),
        (
            {"every": 60.0, "cron": "@daily"},
            {"every": 60.0, "cron": "@daily", "zone": "UTC", "gap": None, "fold": None},
        ),
        ({"zone": "Asia/Tokyo"}, {"cron": "@hourly", "zone": "Asia/Tokyo", "gap": None, "fold": None}),
    ],
)
def test_interval_takes_the_place_of_a_cron(given: dict[str, Any], after: dict[str, Any]) -> None:
    before = {"cron": "@hourly", "zone": "UTC", "gap": None, "fold": None}

    assert edits.patched_timing(before, given) == after


def test_cron_takes_the_place_of_an_interval() -> None:
    patched = edits.patched_timing({"every": 60.0, "anchor": 5, "cron": None}, {"cron": "@hourly"})

    assert patched == {"every": None, "anchor": None, "cron": "@hourly"}


def test_patch_of_the_job_replaces_objects_merges_retry_and_resets_by_null() -> None:
    before = edits.job_text({"kind": "echo", "params": {"a": 1}, "priority": 3, "retry": {"delay": 5.0, "factor": 2.0}})
    given = {"params": {"b": 2}, "priority": None, "retry": {"delay": None, "jitter": 0.5}}

    after = orjson.loads(edits.job_text(edits.patched_job(before, given)))

    assert after == {"kind": "echo", "params": {"b": 2}, "retry": {"factor": 2.0, "jitter": 0.5}}


@pytest.mark.parametrize(
    "job",
    [
        {"kind": "echo"},
        {"params": {}, "kind": "echo", "queue": "default", "priority": 0, "labels": {}},
        {"kind": "echo", "timeout": None, "retry": {"delay": None}, "queue": None},
    ],
)
def test_equal_jobs_have_the_same_text(job: dict[str, Any]) -> None:
    assert edits.job_text(job) == b'{"kind":"echo"}'


def test_definition_that_differs_only_in_spelt_out_defaults_changes_nothing() -> None:
    schedule = make_schedule()
    definition = schedule.definition

    same = replace(definition, timing=replace(definition.timing, anchor=0))

    assert edits.redefine(schedule, same, EPOCH + MINUTE) is schedule
