"""The client that blocks: the same calls, from threads and forked processes."""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from erelong import Client, Draft, JobFailed, NoAnswer
from erelong.client.sync.transport import Transport
from tests.support.unasync import AIO, MADE, SYNC, make


@pytest.fixture
def client(real_service: str) -> Iterator[Client]:
    with Client(real_service) as client:
        yield client


@pytest.fixture
def queue() -> str:
    """A queue of this test alone, since tests share the service."""
    return f"q-{secrets.token_hex(4)}"


def transport_of(client: Client) -> Transport:
    assert isinstance(client._transport, Transport)
    return client._transport


@pytest.mark.parametrize("module", MADE)
def test_blocking_module_is_made_from_its_twin(module: str) -> None:
    assert (SYNC / module).read_text() == make(AIO / module), "run: python -m tests.support.unasync"


def test_job_is_submitted_and_waited_for(client: Client) -> None:
    job = client.submit("echo", {"n": 1}, labels={"a": "b"})

    assert client.get(job).labels == {"a": "b"}
    assert job.result(timeout=10) == {"n": 1}


def test_failure_is_an_exception(client: Client) -> None:
    job = client.submit("echo", {"fail": "boom"}, retry={"max_attempts": 1})

    with pytest.raises(JobFailed, match="boom"):
        job.result(timeout=10)


def test_many_are_submitted_listed_and_awaited(client: Client, queue: str) -> None:
    tickets = [*client.submit_many([Draft("echo", {"n": n}, queue=queue) for n in range(1_500)])]

    assert len({job.id for job in client.as_completed(tickets)}) == 1_500
    assert len([*client.list(state="succeeded", queue=queue)]) == 1_500


def test_queues_schedules_and_operations(client: Client, queue: str) -> None:
    client.queue(queue).set(concurrency=3)
    assert client.queue(queue).pause("why").paused
    schedule = client.schedules.put("hourly", Draft("echo", queue=queue), every="1h")
    assert [found.name for found in client.schedules.list(queue=queue)] == ["hourly"]
    assert schedule.next_at is not None

    job = client.schedules.trigger("hourly")

    assert client.operations.count("cancel", queue=queue)["matches"] == 1
    assert client.operations.cancel(queue=queue, at_most=1, reason="enough").wait(timeout=10).done == 1
    assert client.get(job).state == "cancelled"
    assert client.queue(queue).purge() == 0


def test_events_are_followed(client: Client, queue: str) -> None:
    threading.Timer(0.2, client.submit, ("echo",), {"queue": queue}).start()

    events = client.events(type=["job.submitted", "job.succeeded"], queue=queue)

    assert [next(events).type, next(events).type] == ["job.submitted", "job.succeeded"]


def test_connections_are_kept_and_shared_by_threads(client: Client) -> None:
    with ThreadPoolExecutor(8) as pool:
        ids = {job.id for job in pool.map(lambda n: client.submit("echo", {"n": n}), range(200))}

    assert len(ids) == 200
    assert 1 <= len(transport_of(client)._idle) <= 8


def test_forked_process_has_connections_of_its_own(client: Client) -> None:
    client.me()
    reading, writing = os.pipe()

    if (child := os.fork()) == 0:
        os.write(writing, b"%d" % (client.me()["anonymous"] and len(transport_of(client)._idle)))
        os._exit(0)
    os.waitpid(child, 0)

    assert os.read(reading, 9) == b"1"
    assert client.me()["anonymous"]


def test_service_that_sends_a_byte_now_and_then_does_not_outlast_the_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def drip() -> None:
            connection, _ = listener.accept()
            with connection:
                for byte in b"HTTP/1.1 200 OK\r\nX-Drip: " + b"x" * 1_000:
                    try:
                        connection.sendall(bytes([byte]))
                    except OSError:
                        return
                    time.sleep(0.02)

        thread = threading.Thread(target=drip)
        thread.start()
        began = time.monotonic()
        with (
            Client(f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=0.3, retries=False) as client,
            pytest.raises(NoAnswer, match=r"nothing within 0\.3 s"),
        ):
            client.me()
        took = time.monotonic() - began
        thread.join()

    assert took < 2
