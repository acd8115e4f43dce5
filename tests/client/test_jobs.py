"""Jobs through the client: submit, read, wait, change, list."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from erelong import (
    AsyncClient,
    Changed,
    Draft,
    Invalid,
    JobCancelled,
    JobExpired,
    JobFailed,
    KeyTaken,
    NotFound,
    WrongState,
    kind,
)
from tests.support.served import Served

ONCE = {"max_attempts": 1}


@kind("echo")
def echo(text: str, sleep: float = 0.0) -> dict[str, str]:
    raise NotImplementedError


# submit


async def test_submitted_job_runs_and_returns_its_result(client: AsyncClient) -> None:
    job = await client.submit("echo", {"hello": "world"}, delay="1h")

    assert (job.state, job.kind, job.queue, job.waiting_for) == ("scheduled", "echo", "default", "time")
    assert await job.result() == {"hello": "world"}


async def test_draft_of_a_kind_is_submitted_with_the_names_of_its_parameters(client: AsyncClient) -> None:
    job = await client.submit(echo.job("hi"), delay=timedelta(hours=1), labels={"tenant": "t1"})

    assert (job.params, job.labels) == ({"text": "hi"}, {"tenant": "t1"})
    assert await job.result() == {"text": "hi"}


async def test_aware_datetime_is_an_instant(client: AsyncClient) -> None:
    at = datetime(2026, 3, 1, 9, tzinfo=ZoneInfo("Europe/Berlin"))

    job = await client.submit("echo", at=at)

    assert job.execute_at == at
    assert job.due_at == datetime(2026, 3, 1, 8, tzinfo=UTC)


async def test_naive_datetime_is_refused_with_the_line_to_write(client: AsyncClient) -> None:
    with pytest.raises(ValueError, match=r'at=datetime\(2026, 3, 1, 9, 0, tzinfo=ZoneInfo\("Europe/Berlin"\)\)'):
        await client.submit("echo", at=datetime(2026, 3, 1, 9))

    assert [job async for job in client.list()] == []


async def test_local_time_goes_with_a_zone(client: AsyncClient) -> None:
    job = await client.submit("echo", local_time=datetime(2026, 3, 1, 9), zone="Europe/Berlin")

    assert job.execute_at == datetime(2026, 3, 1, 8, tzinfo=UTC)
    with pytest.raises(ValueError, match="write at=… for an instant"):
        await client.submit("echo", local_time=datetime(2026, 3, 1, 9, tzinfo=UTC), zone="Europe/Berlin")


async def test_refusal_names_the_field(client: AsyncClient) -> None:
    with pytest.raises(Invalid, match="/priority") as caught:
        await client.submit("echo", priority=1_000)

    assert (caught.value.status, caught.value.code) == (422, "invalid")
    assert caught.value.errors[0]["pointer"] == "/priority"
    assert caught.value.request_id


async def test_held_key_names_its_holder(client: AsyncClient) -> None:
    holder = await client.submit("echo", key="order-7", delay=60)

    with pytest.raises(KeyTaken) as caught:
        await client.submit("echo", key="order-7")

    assert caught.value.job is not None
    assert caught.value.job["id"] == holder.id


# read and wait


async def test_job_is_read_by_its_key(client: AsyncClient) -> None:
    job = await client.submit("echo", key="a/b c~", queue="mail", delay=60)

    found = await client.get("~a/b c~", queue="mail")

    assert found == job


async def test_unknown_job_is_not_found(client: AsyncClient) -> None:
    with pytest.raises(NotFound):
        await client.get("nonsense")


async def test_waiting_longer_than_one_request_is_held(client: AsyncClient) -> None:
    job = await client.submit("echo", {"n": 1}, delay="10m")

    assert await job.result(timeout=700) == {"n": 1}


async def test_wait_ends_at_its_timeout(client: AsyncClient) -> None:
    job = await client.submit("echo", delay="10m")

    with pytest.raises(TimeoutError, match=r"is still scheduled after 90 s"):
        await job.result(timeout=90)


@pytest.mark.parametrize(
    ("state", "error"), [("failed", JobFailed), ("cancelled", JobCancelled), ("expired", JobExpired)]
)
async def test_job_without_success_is_an_error_with_the_job(
    service: Served, client: AsyncClient, state: str, error: type[Exception]
) -> None:
    job = await client.get((await service.submit_into(state))["id"])

    with pytest.raises(error) as caught:
        await job.result()

    assert caught.value.job.id == job.id  # type: ignore[attr-defined]  # each of them is a JobError


async def test_wait_for_all_and_for_the_first(client: AsyncClient) -> None:
    soon, late = await client.submit("echo", delay=10), await client.submit("echo", delay=50)

    first = await client.wait([soon, late, "nonsense"], until="first")
    second = await client.wait([soon, late])

    assert (first.missing, first.pending) == (["nonsense"], [soon.id, late.id])
    assert [job.id for job in second.done] == [soon.id, late.id]
    assert await second.done[0].result() == {}


async def test_wait_gives_up_at_its_timeout(client: AsyncClient) -> None:
    soon, late = await client.submit("echo", delay=10), await client.submit("echo", delay=5_000)

    waited = await client.wait([soon, late], timeout=100)

    assert ([job.id for job in waited.done], waited.pending) == ([soon.id], [late.id])


@pytest.mark.timeout(30)
async def test_as_completed_yields_thousands_of_jobs_as_they_end(client: AsyncClient) -> None:
    drafts = [Draft("echo", {"n": n}, delay=(2_500 - n) / 100) for n in range(2_500)]
    tickets = [ticket async for ticket in client.submit_many(drafts)]

    ended = [job async for job in client.as_completed(tickets)]

    assert {job.id for job in ended} == {ticket.id for ticket in tickets}
    assert ended[0].params["n"] > ended[-1].params["n"]


async def test_as_completed_raises_at_its_timeout_and_for_missing_jobs(client: AsyncClient) -> None:
    soon, late = await client.submit("echo", delay=10), await client.submit("echo", delay=5_000)

    with pytest.raises(NotFound, match="nonsense"):
        [job async for job in client.as_completed([soon, "nonsense"])]
    with pytest.raises(TimeoutError, match="1 of 1 jobs"):
        [job async for job in client.as_completed([late], timeout=60)]


# change


async def test_job_is_changed_moved_run_cancelled_retried_and_deleted(client: AsyncClient) -> None:
    job = await client.submit("echo", {"n": 1}, delay="1h", labels={"a": "b"})

    edited = await client.edit(job, params={"n": 2}, priority=3, delay="2h")
    cancelled = await client.cancel(job, reason="no more")
    retried = await client.retry(job)
    result = await (await client.get(job)).result()
    await client.delete(job)

    assert (edited.params, edited.priority, edited.version) == ({"n": 2}, 3, 2)
    assert cancelled.error is not None
    assert (cancelled.state, cancelled.error["message"]) == ("cancelled", "no more")
    assert (retried.state, result) == ("scheduled", {"n": 2})
    with pytest.raises(NotFound):
        await client.get(job)


async def test_run_makes_a_job_due(client: AsyncClient) -> None:
    job = await client.submit("echo", delay="1h")

    await client.run(job)

    assert (await job.wait()).late_by == pytest.approx(0.0, abs=0.1)


async def test_changed_job_is_not_changed_unless_it_is_as_it_was(client: AsyncClient) -> None:
    job = await client.submit("echo", delay="1h")
    await client.edit(job, priority=1)

    with pytest.raises(Changed):
        await client.edit(job, priority=2, if_unchanged=True)
    with pytest.raises(TypeError, match="an id has no version"):
        await client.cancel(job.id, if_unchanged=True)

    assert (await client.get(job)).priority == 1


async def test_ended_job_is_in_the_wrong_state(client: AsyncClient) -> None:
    job = await client.submit("echo")
    await job.result()

    with pytest.raises(WrongState):
        await client.run(job)


# many


async def test_list_goes_through_all_pages(client: AsyncClient) -> None:
    stored = [ticket async for ticket in client.submit_many(Draft("echo", delay=60) for _ in range(25))]

    found = [job.id async for job in client.list(state="scheduled", limit=10)]

    assert found == [ticket.id for ticket in reversed(stored)]


async def test_list_filters_by_words_labels_and_times(client: AsyncClient) -> None:
    for queue in ("a", "b", "c"):
        await client.submit("echo", queue=queue, delay=60, labels={"tenant": queue})

    by_queue = [job.queue async for job in client.list(queue=["a", "b"])]
    by_label = [job.queue async for job in client.list(label={"tenant": "c"})]
    by_time = [job async for job in client.list(due_before=datetime(2026, 1, 1, tzinfo=UTC))]

    assert (by_queue, by_label, by_time) == (["b", "a"], ["c"], [])


async def test_brief_job_says_how_to_get_its_params(client: AsyncClient) -> None:
    await client.submit("echo", {"n": 1}, delay=60)

    (brief,) = [job async for job in client.list()]
    (full,) = [job async for job in client.list(view="full")]

    assert full.params == {"n": 1}
    with pytest.raises(AttributeError, match="view='full'"):
        _ = brief.params


async def test_bad_drafts_of_a_batch_have_problems_and_the_others_are_stored(client: AsyncClient) -> None:
    await client.submit("echo", key="held", delay=60)
    drafts = [Draft("echo"), Draft("emial"), Draft("echo", priority=1_000), Draft("echo", key="held"), Draft("echo")]

    tickets = [ticket async for ticket in client.submit_many(drafts)]

    assert [ticket.index for ticket in tickets] == [0, 1, 2, 3, 4]
    assert [type(ticket.problem) for ticket in tickets] == [type(None), Invalid, Invalid, KeyTaken, type(None)]
    assert "/kind" in str(tickets[1].problem)
    with pytest.raises(Invalid, match="/priority"):
        _ = tickets[2].id
    assert len([job async for job in client.list()]) == 3


# views


async def test_view_has_options_for_its_submits_alone(client: AsyncClient) -> None:
    async with client.defaults(queue="mail", delay="1h", labels={"tenant": "t1"}) as mail:
        first = await mail.submit("echo", labels={"order": "7"})
        second = await mail.submit("echo", queue="other", at="2027-01-01T00:00:00Z")
        (ticket,) = [ticket async for ticket in mail.defaults(priority=3).submit_many([Draft("echo")])]
    plain = await client.submit("echo")  # leaving the view closes nothing
    third = await client.get(ticket)

    assert (first.queue, first.labels, first.state) == ("mail", {"tenant": "t1", "order": "7"}, "scheduled")
    assert (second.queue, second.raw["execute_at"]) == ("other", "2027-01-01T00:00:00.000Z")
    assert (third.queue, third.priority, third.labels) == ("mail", 3, {"tenant": "t1"})
    assert (plain.queue, plain.labels) == ("default", {})
