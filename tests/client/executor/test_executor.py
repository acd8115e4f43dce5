"""What `erelong.Executor` does beyond the promises of concurrent.futures."""

from __future__ import annotations

import gc
import secrets
import threading
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from typing import Any

import pytest

from erelong import (
    Busy,
    Client,
    Draft,
    Executor,
    Forbidden,
    Invalid,
    JobFailed,
    NoAnswer,
    NotFound,
    Refused,
    ResultTruncated,
    kind,
)
from erelong.client.executor.future import JobFuture
from erelong.client.records import JobRecord
from erelong.client.requests import Request
from erelong.client.sync.transport import Transport


@dataclass
class Echoed:
    n: int


@kind("echo")
def echo(n: int) -> Echoed:
    raise NotImplementedError


@kind("echo", retry={"max_attempts": 1})
def fail(fail: str) -> None:
    raise NotImplementedError


LATER = echo.job(1).with_options(delay="1h")


@pytest.fixture
def pool(client: Client) -> Iterator[Executor]:
    pool = Executor(client)
    yield pool
    pool.shutdown(wait=False, cancel_futures=True)


def test_future_has_the_typed_result(pool: Executor) -> None:
    future = pool.submit(echo, n=3)

    assert future.result(timeout=10) == Echoed(3)
    assert (future.done(), future.running(), future.cancelled(), future.exception()) == (True, False, False, None)


def test_failure_of_a_job_is_the_exception_of_its_future(pool: Executor) -> None:
    error = pool.submit(fail, "boom").exception(timeout=10)

    assert isinstance(error, JobFailed)
    assert "boom" in str(error)


def test_failure_of_a_worker_shows_its_traceback(client: Client) -> None:
    error = JobFailed(
        JobRecord({"id": "x", "kind": "k", "state": "failed", "attempts": [{"output": "one"}, {"output": "two"}]})
    )

    assert error.output == "two"
    assert "two" in "".join(traceback.format_exception(error))


def test_kind_can_be_a_name_and_a_draft_has_options(pool: Executor) -> None:
    by_name = pool.submit("echo", n=1)
    by_draft = pool.submit(Draft("echo", {"n": 2}, priority=3))

    assert (by_name.result(10), by_draft.result(10)) == ({"n": 1}, {"n": 2})


def test_plain_function_is_refused_with_the_remedy(pool: Executor) -> None:
    def resize() -> None: ...

    with pytest.raises(TypeError, match=r'resize is not a kind: decorate it with @kind\("resize"\)'):
        pool.submit(resize)  # type: ignore[call-overload]  # the type checker sees it too


def test_only_a_waiting_call_can_be_cancelled(pool: Executor, client: Client) -> None:
    waiting, running = pool.submit(LATER), pool.submit("echo", sleep=30)
    while not running.running():
        pass

    assert (waiting.cancel(), running.cancel()) == (True, False)
    assert client.get(waiting.job_id).state == "cancelled"
    with pytest.raises(CancelledError):
        waiting.result(timeout=1)
    running.stop("enough")


def test_edited_job_is_still_cancelled(pool: Executor, client: Client) -> None:
    future = pool.submit(LATER)
    client.edit(future.job_id, priority=3)

    assert future.cancel()


def test_map_yields_results_in_order(pool: Executor) -> None:
    assert [*pool.map(echo, range(1_200))] == [Echoed(n) for n in range(1_200)]


def test_shutdown_cancels_waiting_calls(client: Client) -> None:
    pool = Executor(client)
    future = pool.submit(LATER)

    pool.shutdown(cancel_futures=True)

    assert future.cancelled()


def test_deleted_job_is_an_error(pool: Executor, client: Client) -> None:
    future = pool.submit(LATER)
    client.delete(future.job_id)

    with pytest.raises(NotFound, match="was deleted"):
        future.result(timeout=10)


def test_submit_blocks_while_too_many_are_pending(client: Client) -> None:
    pool = Executor(client, max_pending=2)
    first, _ = pool.submit(LATER), pool.submit(LATER)
    third: list[Future[Any]] = []
    thread = threading.Thread(target=lambda: third.append(pool.submit(echo, n=3)))

    thread.start()
    thread.join(0.2)
    is_blocked = thread.is_alive()
    first.cancel()
    thread.join(10)

    assert is_blocked
    assert third[0].result(10) == Echoed(3)
    pool.shutdown(cancel_futures=True)


def test_view_submits_with_its_options(pool: Executor, client: Client) -> None:
    view = pool.options(queue="q1", labels={"tenant": "t1"}).options(priority=7)

    single, (mapped,) = view.submit(echo, 1), view.map(echo, [2])

    job = client.get(single.job_id)
    assert (job.queue, job.priority, job.labels) == ("q1", 7, {"tenant": "t1", "executor": pool.id})
    assert mapped == Echoed(2)
    assert len([*client.list(label={"executor": pool.id, "tenant": "t1"})]) == 2
    view.shutdown()
    with pytest.raises(RuntimeError, match="after shutdown"):
        pool.submit(echo, 1)


def test_another_process_finds_the_futures_again(client: Client) -> None:
    first = Executor(client, id=f"report-{secrets.token_hex(4)}")
    done, later, failed = first.submit(echo, 1), first.submit(LATER), first.submit(fail, "boom")
    done.result(10)
    first.shutdown(wait=False)

    found = Executor.attach(first.id, client, kinds=[echo])

    assert [future.job_id for future in found.futures] == [done.job_id, later.job_id, failed.job_id]
    assert found.futures[0].result(10) == Echoed(1)
    assert isinstance(found.futures[2].exception(10), JobFailed)
    assert found.futures[1].cancel()
    assert found.submit(echo, 4).result(10) == Echoed(4)
    assert len(Executor.attach(first.id, client).futures) == 4
    found.shutdown()


def test_futures_of_one_job_are_all_settled(pool: Executor) -> None:
    view = pool.options(key=secrets.token_hex(8), on_conflict="keep", delay="0.2s")

    one, two = view.submit(echo, 1), view.submit(echo, 2)

    assert one.job_id == two.job_id
    assert (one.result(10), two.result(10)) == (Echoed(1), Echoed(1))


def test_large_results_arrive_whole(pool: Executor) -> None:
    texts = [f"{number}{'x' * 60_000}" for number in range(160)]  # more than one answer of the service holds

    futures = [pool.submit("echo", text=text) for text in texts]

    assert [future.result(20)["text"] for future in futures] == texts


def test_result_that_the_service_could_not_keep_is_an_error(client: Client) -> None:
    future = JobFuture[Echoed](client=client, job_id="x", returns=Echoed)
    raw = {"id": "x", "kind": "k", "state": "succeeded", "result": '{"n":[1, 2, ', "result_truncated": True}

    future.settle(JobRecord(raw))

    with pytest.raises(ResultTruncated, match="was too large to be kept"):
        future.result(0)


def test_refused_call_of_a_map_is_raised_in_its_place(pool: Executor) -> None:
    results = pool.options(queue="no queue").map(echo, [1])

    with pytest.raises(Invalid, match="queue"):
        next(results)
    assert pool._unfinished == 0


def test_submit_that_waits_for_room_ends_with_the_shutdown(client: Client) -> None:
    pool = Executor(client, max_pending=1)
    first = pool.submit(LATER)
    errors: list[RuntimeError] = []

    def submit() -> None:
        try:
            pool.submit(echo, 1)
        except RuntimeError as error:
            errors.append(error)

    thread = threading.Thread(target=submit)
    thread.start()
    thread.join(0.1)
    pool.shutdown(wait=False)
    thread.join(10)

    assert "after shutdown" in str(errors[0])
    assert first.cancel()


def test_callback_may_submit_when_there_is_no_room(client: Client) -> None:
    pool = Executor(client, max_pending=1)
    found: list[Future[Any]] = []

    pool.submit(echo, 1).add_done_callback(lambda _: found.extend([pool.submit(echo, 2), pool.submit(echo, 3)]))
    while len(found) < 2:
        time.sleep(0.01)

    assert [future.result(10) for future in found] == [Echoed(2), Echoed(3)]
    pool.shutdown()


def test_service_that_is_away_is_asked_again(
    pool: Executor, client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("erelong.client.executor.follower.PAUSE", 0.01)
    errors: list[Exception] = [NoAnswer("cut", maybe_done=False), Refused(500, {}), Busy(429, {})]
    send = client.send

    def send_or_fail(request: Request, **options: Any) -> Any:
        if request.path == "/v1/jobs/wait" and errors:
            raise errors.pop()
        return send(request, **options)

    monkeypatch.setattr(client, "send", send_or_fail)

    assert pool.submit(echo, 1).result(10) == Echoed(1)
    assert errors == []
    assert caplog.text.count("service_away") == 1


@pytest.mark.parametrize("error", [Forbidden(403, {"detail": "no scope read"}), KeyError("ended")])
def test_service_that_cannot_be_followed_fails_all_futures(
    pool: Executor, client: Client, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    send = client.send

    def send_or_fail(request: Request, **options: Any) -> Any:
        if request.path == "/v1/jobs/wait":
            raise error
        return send(request, **options)

    monkeypatch.setattr(client, "send", send_or_fail)

    assert pool.submit(LATER).exception(10) is error
    assert pool.submit(LATER).exception(10) is error


def test_executor_that_nobody_uses_any_more_ends_its_thread(client: Client) -> None:
    pool = Executor(client)
    pool.submit(echo, 1).result(10)
    thread = pool._thread
    assert thread is not None

    del pool
    gc.collect()
    thread.join(10)

    assert not thread.is_alive()


def test_own_client_is_closed_with_the_executor(real_service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ERELONG_URL", real_service)

    used, unused = Executor(), Executor()
    used.submit(echo, 1).result(10)
    used.shutdown()
    unused.shutdown()

    for pool in (used, unused):
        assert isinstance(pool._client._transport, Transport)
        assert pool._client._transport._is_closed
