"""The callback of a job that ends: when it is made, its fields, and the report that it sends."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from erelong.model.extras import Extras, OnFinish, read_extras
from erelong.model.job import Job, State
from erelong.model.outcome import End, Outcome
from erelong.model.reports.callback import (
    FINAL_WORDS,
    MAX_RESULT,
    is_unreadable,
    linked,
    make_callback,
    make_on_finish,
    on_finish_of,
)
from tests.support.builders import NOW, make_ended, make_job, make_retry, make_running

URL = "https://app.example/done"
FINAL = [state for state in State if state.is_final]


def make_extras(**given: Any) -> Extras:
    return {"on_finish": make_on_finish({"url": URL, **given}, None)}


def link(job: Job, **fields: Any) -> tuple[Job, Job]:
    """Return an ended job and its callback as they are stored."""
    queue = read_extras(job.extras)["on_finish"]["queue"]
    callback = make_callback(job, queue, timeout=9.0, retry=make_retry(max_attempts=2), token="f" * 16, now=NOW + 5)
    return linked(job, callback._replace(seq=77, **fields))


def report_of(callback: Job) -> dict[str, Any]:
    report: dict[str, Any] = orjson.loads(callback.params)["json"]
    return report


def test_fields_not_given_have_defaults() -> None:
    assert make_on_finish({"url": URL}, None) == OnFinish(
        url=URL, headers={}, states=["succeeded", "failed", "cancelled", "expired"], queue="callbacks", job=None
    )
    nulls = {"url": URL, "headers": None, "states": None, "queue": None}
    assert make_on_finish(nulls, None) == make_on_finish({"url": URL}, None)


def test_given_fields_are_kept_and_states_have_one_order() -> None:
    given = {"url": URL, "headers": {"A": "b"}, "states": ["expired", "failed", "failed"], "queue": "mail"}

    assert make_on_finish(given, None) == given | {"states": ["failed", "expired"], "job": None}


def test_replaced_on_finish_still_shows_the_latest_callback() -> None:
    before = make_on_finish({"url": URL}, None) | {"job": "1"}

    assert make_on_finish({"url": "https://b.example"}, before)["job"] == "1"


@pytest.mark.parametrize("state", FINAL, ids=lambda state: state.word)
def test_end_is_reported_in_the_states_given_alone(state: State) -> None:
    others = [word for word in FINAL_WORDS if word != state.word]

    assert on_finish_of(make_ended(state, extras=make_extras())) == make_extras()["on_finish"]
    assert on_finish_of(make_ended(state, extras=make_extras(states=[state.word]))) is not None
    assert on_finish_of(make_ended(state, extras=make_extras(states=others))) is None
    assert on_finish_of(make_ended(state)) is None
    assert on_finish_of(make_ended(state, extras={"spread": 60.0})) is None


def test_live_job_is_not_reported() -> None:
    assert on_finish_of(make_job(extras=make_extras())) is None
    assert on_finish_of(make_running(extras=make_extras())) is None


@pytest.mark.parametrize(
    "on_finish", [7, [], {}, {"url": URL}, {**make_extras()["on_finish"], "states": "failed"}, {"job": 7}], ids=repr
)
def test_on_finish_that_cannot_be_read_calls_nobody(on_finish: Any) -> None:
    job = make_ended(State.FAILED, extras={"on_finish": on_finish})

    assert on_finish_of(job) is None
    assert is_unreadable(job)


def test_job_that_lost_its_extras_may_have_had_a_callback() -> None:
    ended = make_ended(State.FAILED, extras=make_extras())

    assert is_unreadable(ended._replace(extras=b" {}"))
    assert not is_unreadable(ended)
    assert not is_unreadable(make_ended(State.FAILED))
    assert not is_unreadable(make_ended(State.FAILED, extras={"spread": 60.0}))


def test_callback_is_an_http_job_with_the_labels_of_the_job() -> None:
    job = make_ended(State.FAILED, seq=5, labels={"tenant": "t1"}, extras=make_extras(queue="mail"), priority=7)

    _, callback = link(job)

    assert (callback.kind, callback.queue, callback.state, callback.key) == ("http", "mail", State.SCHEDULED, None)
    assert (callback.timeout, callback.policy.max_attempts, callback.priority) == (9.0, 2, 0)
    assert (callback.execute_at, callback.due_at, callback.created_at) == (NOW + 5,) * 3
    assert orjson.loads(callback.labels or b"") == {"tenant": "t1"}
    assert read_extras(callback.extras) == {"callback_of": job.id}


def test_callback_has_no_system_labels_of_the_job() -> None:
    extras: Extras = {**make_extras(), "schedule": "report", "occurrence": NOW}

    _, callback = link(make_ended(State.FAILED, seq=5, extras=extras))

    assert callback.labels is None


def test_job_and_callback_name_each_other() -> None:
    job, callback = link(make_ended(State.FAILED, seq=5, extras={**make_extras(), "spread": 60.0}))

    extras = read_extras(job.extras)
    assert (extras["on_finish"]["job"], extras["spread"]) == (callback.id, 60.0)
    assert read_extras(callback.extras)["callback_of"] == job.id


def test_callback_sends_the_end_of_the_job_with_the_headers_given() -> None:
    extras = make_extras(headers={"Authorization": "Bearer {secret:app}"})

    job, callback = link(make_ended(State.FAILED, seq=5, params={"n": 1}, extras=extras))

    params = orjson.loads(callback.params)
    assert (params["url"], params["headers"]) == (URL, {"Authorization": "Bearer {secret:app}"})
    report = params["json"]
    assert (report["type"], report["time"]) == ("job.failed", "2026-01-01T00:00:00.000Z")
    shown = report["job"]
    assert (shown["id"], shown["state"], shown["version"]) == (job.id, "failed", job.version)
    assert shown["error"]["message"] == "boom"
    assert shown["on_finish"]["job"] == callback.id
    assert "params" not in shown
    assert "attempts" not in shown


def test_callback_without_headers_sends_none() -> None:
    _, callback = link(make_ended(State.SUCCEEDED, seq=5, extras=make_extras()))

    assert orjson.loads(callback.params).keys() == {"url", "json"}


@pytest.mark.parametrize(("size", "is_omitted"), [(MAX_RESULT, False), (MAX_RESULT + 1, True)])
def test_long_result_is_left_out(size: int, is_omitted: bool) -> None:
    result = b'"%s"' % (b"x" * (size - 2))
    running = make_running(seq=5, extras=make_extras())

    _, callback = link(running.finish(Outcome(End.SUCCEEDED, result=result), NOW))

    shown = report_of(callback)["job"]
    assert ("result" in shown, shown.get("result_omitted")) == (not is_omitted, True if is_omitted else None)


def test_job_without_a_result_reports_null() -> None:
    _, callback = link(make_ended(State.CANCELLED, seq=5, extras=make_extras()))

    assert report_of(callback)["job"]["result"] is None


def test_jobs_that_are_no_callbacks_stay_as_they_are() -> None:
    job, other = make_ended(State.FAILED, seq=5, extras=make_extras()), make_job(seq=6, extras={"spread": 1.0})
    callback_of_another = make_job(seq=7, extras={"callback_of": make_job(seq=8).id})
    plain = make_ended(State.FAILED, seq=9)

    assert linked(job, other) == (job, other)
    assert linked(plain, other) == (plain, other)
    assert linked(job, plain) == (job, plain)
    assert linked(job, callback_of_another) == (job, callback_of_another)
