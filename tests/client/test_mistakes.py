"""What newcomers write by mistake: it works if the meaning is plain, or the error says what to write."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from erelong import AsyncClient, Client, Draft, Worker, kind
from erelong.client.times import seconds_of
from erelong.client.values import dump


@kind("echo")
def remind(user: int) -> dict[str, int]:
    raise NotImplementedError


def plain(user: int) -> None: ...


@pytest.mark.parametrize(
    ("given", "advice"),
    [
        ((remind,), r"remind is a kind: write remind\.job\(…\)"),
        ((remind, {"user": 7}), r"remind is a kind: write remind\.job\(…\)"),
        ((remind.job(7), {"user": 7}), "the draft of echo has params already"),
        ((plain,), r'decorate it with @kind\("plain"\)'),
        ((lambda: 1,), "<lambda> is not a kind: define a function"),
        (({"kind": "echo"},), r'is not a draft: write Draft\("echo"'),
    ],
)
async def test_what_is_no_draft_is_refused_with_what_to_write(
    client: AsyncClient, given: tuple[Any, ...], advice: str
) -> None:
    submit: Any = client.submit
    with pytest.raises(TypeError, match=advice):
        await submit(*given)


async def test_drafts_of_schedules_and_batches_are_checked_too(client: AsyncClient) -> None:
    wrong: Any = {"kind": "echo"}

    with pytest.raises(TypeError, match="is not a draft"):
        await client.schedules.put("daily", wrong, cron="0 9 * * *")
    with pytest.raises(TypeError, match="is not a draft"):
        [ticket async for ticket in client.submit_many([wrong])]


async def test_one_job_is_waited_for_like_a_list_of_one(client: AsyncClient) -> None:
    job = await client.submit(remind.job(7), delay=5)

    waited = await client.wait(job)
    by_id = await client.wait(job.id)
    ended = [found async for found in client.as_completed(job)]

    assert [found.id for found in (*waited.done, *by_id.done, *ended)] == [job.id] * 3


async def test_what_is_no_job_is_refused(client: AsyncClient) -> None:
    wrong: Any = 7
    with pytest.raises(TypeError, match="7 is not a job, a ticket or an id"):
        await client.get(wrong)


def test_kind_without_its_name_is_refused_with_what_to_write() -> None:
    decorators: list[Any] = [kind, Worker().kind]
    for decorator, advice in zip(decorators, (r'@kind\("plain"\)', r'@worker\.kind\("plain"\)'), strict=True):
        with pytest.raises(TypeError, match=advice):
            decorator(plain)


async def test_batch_over_which_nobody_iterates_is_a_warning(client: AsyncClient) -> None:
    with pytest.warns(RuntimeWarning, match="submit_many has submitted nothing: iterate"):
        client.submit_many([Draft("echo")])


def test_batch_of_the_blocking_client_over_which_nobody_iterates_is_a_warning(free_port: int) -> None:
    client = Client(f"http://127.0.0.1:{free_port}")
    with pytest.warns(RuntimeWarning, match="submit_many has submitted nothing: iterate"):
        client.submit_many([Draft("echo")])


def test_client_of_another_loop_is_refused(free_port: int) -> None:
    client = AsyncClient(f"http://127.0.0.1:{free_port}", retries=False)

    async def ask() -> None:
        with pytest.raises(Exception, match="no answer"):
            await client.get("a")

    async def ask_again() -> None:
        with pytest.raises(RuntimeError, match=r"another event loop: make one inside each asyncio\.run"):
            await client.get("a")
        await client.close()

    asyncio.run(ask())
    asyncio.run(ask_again())


def test_closed_client_is_refused(real_service: str) -> None:
    client = Client(real_service)
    client.submit("echo")
    client.close()

    with pytest.raises(RuntimeError, match="the client is closed: make another one"):
        client.submit("echo")


async def test_closed_client_for_asyncio_is_refused(client: AsyncClient) -> None:
    await client.submit("echo")
    await client.close()

    with pytest.raises(RuntimeError, match="the client is closed: make another one"):
        await client.submit("echo")


async def test_zone_may_be_a_zone_info(client: AsyncClient) -> None:
    berlin = ZoneInfo("Europe/Berlin")

    job = await client.submit("echo", local_time=datetime(2027, 3, 1, 9), zone=berlin)
    schedule = await client.schedules.put("daily", remind.job(7), cron="0 9 * * *", zone=berlin)

    assert (job.raw["zone"], schedule.raw["zone"]) == ("Europe/Berlin", "Europe/Berlin")


async def test_lists_take_labels_by_both_names(client: AsyncClient) -> None:
    job = await client.submit("echo", labels={"tenant": "t1"}, delay=60)
    await client.submit("echo", delay=60)

    found = [found.id async for found in client.list(labels={"tenant": "t1"})]
    operation = await client.operations.cancel(labels={"tenant": "t1"}, at_most=1)

    assert found == [job.id]
    assert (await operation.wait("1m")).raw["done"] == 1


async def test_waits_take_durations_as_text(client: AsyncClient) -> None:
    job = await client.submit("echo", delay="1h")

    for timeout in ("300ms", timedelta(seconds=0.3)):
        with pytest.raises(TimeoutError):
            await job.result(timeout=timeout)
        assert (await client.wait([job], timeout=timeout)).pending == [job.id]
    assert (await client.get(job, wait="1s")).state == "scheduled"


@pytest.mark.parametrize(("text", "seconds"), [("300ms", 0.3), ("1h30m", 5_400.0), ("1.5d", 129_600.0)])
def test_text_is_a_duration(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "m", "1 h", "1h x", "-1s"])
def test_other_text_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration: write seconds"):
        seconds_of(text)


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ({"params": {"rates": [1.0, float("nan")]}}, r"^params\.rates\[1\] is not finite"),
        (Draft("echo", {"n": float("inf")}).body(), r"^params\.n is not finite"),
        (float("nan"), "^the value is not finite"),
    ],
)
def test_number_without_a_json_form_names_its_field(value: object, place: str) -> None:
    with pytest.raises(ValueError, match=place):
        dump(value)


def test_cycle_is_refused_as_such() -> None:
    cycle: list[object] = []
    cycle.append(cycle)

    with pytest.raises(ValueError, match="Circular"):
        dump(cycle)
