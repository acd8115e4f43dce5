"""Extras: stored as JSON, with system labels that follow from them and that no change of labels removes."""

from __future__ import annotations

import orjson
import pytest

from erelong.model.extras import (
    USUAL_LEASE,
    Extras,
    end_plainly,
    extras_of,
    join_labels,
    label_of,
    lease_length,
    own_labels,
    patched,
    pop_lease,
    read_extras,
    with_lease,
    write_extras,
)
from erelong.model.reports.callback import make_on_finish
from erelong.stores.json_columns import LOST
from tests.support.builders import NOW, make_job

ON_FINISH = make_on_finish({"url": "https://app.example"}, None)
EXTRAS: Extras = {"schedule": "report", "occurrence": NOW, "spread": 60.0}
SYSTEM_LABELS = {"@schedule": "report", "@occurrence": "2026-01-01T00:00:00.000Z"}


@pytest.mark.parametrize("extras", [Extras(), EXTRAS, Extras(on_finish=ON_FINISH)])
def test_extras_are_read_as_they_were_written(extras: Extras) -> None:
    assert read_extras(write_extras(extras)) == extras


def test_job_without_extras_stores_none() -> None:
    assert write_extras({}) is None
    assert make_job().extras is None
    assert make_job(extras={}).extras is None


def test_patch_sets_and_removes_extras() -> None:
    assert patched(EXTRAS, {"spread": None, "zone": "UTC"}) == {"schedule": "report", "occurrence": NOW, "zone": "UTC"}


def test_job_made_with_extras_has_their_system_labels_beside_its_own() -> None:
    job = make_job(labels={"tenant": "t1"}, extras=EXTRAS)

    assert orjson.loads(job.labels or b"{}") == {"tenant": "t1", **SYSTEM_LABELS}
    assert own_labels(job.labels) == {"tenant": "t1"}


def test_system_label_is_the_one_that_a_query_uses() -> None:
    assert dict([label_of("schedule", "report"), label_of("occurrence", NOW)]) == SYSTEM_LABELS


def test_system_labels_follow_a_change_of_the_extras() -> None:
    job = make_job(labels={"tenant": "t1"}, extras={"zone": "Europe/Berlin", "local_time": "2027-03-28T09:00:00"})

    moved = job.with_extras({"zone": "UTC", "local_time": "2027-03-28T09:00:00"})
    cleared = moved.with_extras({})

    assert orjson.loads(moved.labels or b"{}") == {"tenant": "t1", "@zone": "UTC"}
    assert (cleared.labels, cleared.extras) == (b'{"tenant":"t1"}', None)
    assert {job.version, moved.version, cleared.version} == {1}


@pytest.mark.parametrize("labels", [None, b'{"env":"prod"}'])
def test_system_labels_survive_a_change_of_the_labels(labels: bytes | None) -> None:
    job = make_job(labels={"tenant": "t1"}, extras=EXTRAS)

    after = job.rewrite(params=b"{}", labels=labels, priority=0, timeout=1.0, retry=job.retry)

    assert orjson.loads(after.labels or b"{}") == {**orjson.loads(labels or b"{}"), **SYSTEM_LABELS}


def test_client_labels_are_left_alone_by_a_job_without_extras() -> None:
    assert join_labels(b'{"tenant":"t1"}', {}) == b'{"tenant":"t1"}'
    assert join_labels(None, {}) is None
    assert own_labels(None) == {}


def test_nothing_follows_from_the_end_of_a_job_that_only_names_its_key() -> None:
    assert end_plainly(extras_of("app"))
    assert end_plainly(with_lease(extras_of("app"), 60.0, "host-1"))
    assert not end_plainly(write_extras({"submitted_by": "app", "schedule": "report"}))
    assert not end_plainly(write_extras({"on_finish": ON_FINISH}))
    assert not end_plainly(LOST)


@pytest.mark.parametrize("extras", [Extras(), EXTRAS])
def test_lease_is_removed_from_the_extras_to_which_it_was_added(extras: Extras) -> None:
    text = write_extras(extras)

    assert pop_lease(with_lease(text, 60.0, "host-1")) == ("host-1", text)
    assert pop_lease(with_lease(text, 60.0)) == (None, text)
    assert pop_lease(text) == (None, text)


def test_lease_leaves_lost_extras_alone() -> None:
    assert with_lease(LOST, 60.0, "host-1") == LOST
    assert pop_lease(LOST) == (None, LOST)


def test_extras_have_the_latest_length_of_a_lease_and_its_worker() -> None:
    text = with_lease(with_lease(None, 60.0, "host-1"), 90.0)

    assert (lease_length(text), pop_lease(text)) == (90.0, ("host-1", None))


def test_lease_of_usual_length_without_a_worker_needs_no_extras() -> None:
    assert with_lease(None, USUAL_LEASE) is None
    assert lease_length(None) == USUAL_LEASE
    assert with_lease(with_lease(None, 60.0), USUAL_LEASE) is None
