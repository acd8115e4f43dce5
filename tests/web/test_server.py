"""Connections are bounded: in number, in the time of their headers, in their unread responses."""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

import orjson
import pytest
import pytest_asyncio

from erelong.settings.kinds import KindSettings
from erelong.settings.queues import QueueSettings
from erelong.settings.sections import LimitsSection
from erelong.web.server import MAX_OVERFLOW
from tests.support.served import Serve, Served

LIVEZ = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
QUEUES = b"GET /v1/queues HTTP/1.1\r\nHost: localhost\r\n\r\n"
SLOW_BODY = b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"


class Client:
    """A raw connection."""

    def __init__(self, service: Served, streams: tuple[StreamReader, StreamWriter]) -> None:
        self.service = service
        self.reader, self.writer = streams

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        """Send a request; return the status and the body of the response."""
        self.writer.write(request)
        head = await self.reader.readuntil(b"\r\n\r\n")
        fields = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
        return int(head.split()[1]), await self.reader.readexactly(int(fields[b"Content-Length"]))

    async def seconds_until_closed(self) -> float:
        began_at = self.service.clock.now()
        while await self.reader.read(65_536):
            pass
        return (self.service.clock.now() - began_at) / 1e6


Connect = Callable[..., Awaitable[Client]]


@pytest_asyncio.fixture
async def connect() -> AsyncIterator[Connect]:
    """Return a function that connects to a service and sends bytes. Close all connections after the test."""
    clients: list[Client] = []

    async def begin(service: Served, request: bytes = b"") -> Client:
        clients.append(Client(service, await asyncio.open_connection("127.0.0.1", service.port)))
        clients[-1].writer.write(request)
        await asyncio.sleep(0.01)
        return clients[-1]

    yield begin
    for client in clients:
        client.writer.transport.abort()
    await asyncio.sleep(0.01)


async def test_incomplete_headers_time_out(service: Served, connect: Connect) -> None:
    client = await connect(service)
    began_at = service.clock.now()

    status, body = await client.ask(LIVEZ[:-2])

    assert (status, orjson.loads(body)["code"]) == (408, "header_timeout")
    assert (service.clock.now() - began_at) / 1e6 == pytest.approx(5, abs=0.1)
    assert await client.seconds_until_closed() < 0.1


async def test_slow_headers_do_not_extend_their_timeout(service: Served, connect: Connect) -> None:
    client = await connect(service)
    began_at = service.clock.now()

    for index in range(4):
        client.writer.write(LIVEZ[index : index + 1])
        await asyncio.sleep(1)
    status, _ = await client.ask(b" ")

    assert status == 408
    assert (service.clock.now() - began_at) / 1e6 == pytest.approx(5, abs=0.1)


async def test_headers_in_pieces_are_accepted_and_each_request_has_its_own_timeout(
    service: Served, connect: Connect
) -> None:
    client = await connect(service)

    for _ in range(3):
        client.writer.write(LIVEZ[:10])
        await asyncio.sleep(4)
        assert (await client.ask(LIVEZ[10:]))[0] == 200


async def test_headers_that_are_too_long_in_total_are_refused(service: Served, connect: Connect) -> None:
    client = await connect(service, LIVEZ[:-2])

    for _ in range(5):
        client.writer.write(b"X: " + b"a" * 8_000 + b"\r\n")
        await asyncio.sleep(0.01)
    status, body = await client.ask(b"X")

    assert (status, orjson.loads(body)["code"]) == (400, "bad_header")


async def test_idle_connection_is_closed_after_its_time(service: Served, connect: Connect) -> None:
    client = await connect(service)

    await client.ask(LIVEZ)

    assert await client.seconds_until_closed() == pytest.approx(75, abs=0.1)


async def test_connection_without_a_request_is_closed(service: Served, connect: Connect) -> None:
    assert await (await connect(service)).seconds_until_closed() == pytest.approx(75, abs=0.1)


async def test_new_connection_replaces_an_idle_one(serve: Serve, connect: Connect) -> None:
    service = await serve(limits=LimitsSection(max_connections=3))
    clients = [await connect(service) for _ in range(3)]
    for client in clients[1:]:
        client.writer.write(SLOW_BODY)
    await asyncio.sleep(0.1)

    status, _ = await (await connect(service)).ask(QUEUES)

    assert status == 200
    assert await clients[0].seconds_until_closed() < 0.1
    assert (await clients[1].ask(b"}" * 99))[0] == 400  # still connected: the body is not JSON


async def test_new_connection_gets_a_503_when_all_are_busy(serve: Serve, connect: Connect) -> None:
    service = await serve(limits=LimitsSection(max_connections=2))
    busy = [await connect(service, SLOW_BODY) for _ in range(2)]

    client = await connect(service)
    status, body = await client.ask(QUEUES)

    assert (status, orjson.loads(body)["code"]) == (503, "too_many_connections")
    assert await client.seconds_until_closed() < 0.1
    busy[0].writer.close()
    await asyncio.sleep(0.1)
    assert (await (await connect(service)).ask(QUEUES))[0] == 200


async def test_probes_are_answered_when_all_are_busy(serve: Serve, connect: Connect) -> None:
    service = await serve(limits=LimitsSection(max_connections=2))
    for _ in range(2):
        await connect(service, SLOW_BODY)
    silent = [await connect(service) for _ in range(MAX_OVERFLOW + 10)]

    client = await connect(service)
    status, body = await client.ask(LIVEZ)

    assert (status, orjson.loads(body)) == (200, {"live": True})
    assert await client.seconds_until_closed() < 0.1
    assert await silent[0].seconds_until_closed() < 0.1


async def test_connection_with_an_unread_response_is_closed(service: Served, connect: Connect) -> None:
    for index in range(20):
        await service.submit(delay=1_000, params={"a": f"{index:06}" * 10_000})
    client = await connect(service)
    client.reader._transport.pause_reading()  # type: ignore[attr-defined]  # otherwise asyncio reads ahead

    client.writer.write(b"GET /v1/jobs?view=full HTTP/1.1\r\nHost: localhost\r\n\r\n" * 20)
    await asyncio.sleep(60)

    client.reader._transport.resume_reading()  # type: ignore[attr-defined]
    with suppress(ConnectionResetError):
        await client.seconds_until_closed()
    assert service.node.metrics.requests.values["GET", "/v1/jobs", "200"] < 20


STREAM = (
    b"POST /v1/jobs/batch HTTP/1.1\r\nHost: localhost\r\n"
    b"Content-Type: application/x-ndjson\r\nContent-Length: 2\r\n\r\n{}"
)


@pytest.mark.parametrize("before", [b"", STREAM], ids=["at first", "after a stream"])
async def test_next_request_waits_until_the_last_response_is_read(
    service: Served, before: bytes, connect: Connect
) -> None:
    job = await service.submit(delay=1_000, params={"a": "x" * 50_000})
    client = await connect(service)
    client.reader._transport.pause_reading()  # type: ignore[attr-defined]  # otherwise asyncio reads ahead

    client.writer.write(before + f"GET /v1/jobs/{job['id']} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() * 400)
    await asyncio.sleep(60)

    assert 0 < service.node.metrics.requests.values["GET", "/v1/jobs/{id}", "200"] < 300


async def test_rest_of_a_refused_body_is_read_only_briefly(service: Served, connect: Connect) -> None:
    client = await connect(service)

    status, _ = await client.ask(b"POST /nope HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")

    assert status == 404
    assert await client.seconds_until_closed() == pytest.approx(2, abs=0.1)


async def test_slowly_read_response_is_sent_in_full(service: Served, connect: Connect) -> None:
    for index in range(40):
        await service.submit(delay=1_000, params={"a": f"{index:06}" * 5_000})
    client = await connect(service, b"GET /v1/jobs?view=full HTTP/1.1\r\nHost: localhost\r\n\r\n")
    head = await client.reader.readuntil(b"\r\n\r\n")
    length = int(head.split(b"Content-Length: ")[1].split(b"\r\n")[0])

    body = b""
    while len(body) < length:
        body += await client.reader.read(200_000)
        await asyncio.sleep(4)

    assert len(orjson.loads(body)["jobs"]) == 40


async def test_long_poll_of_a_disconnected_client_frees_its_waiter(serve: Serve, connect: Connect) -> None:
    service = await serve(limits=LimitsSection(max_waiters=1))
    job = await service.submit(delay=1_000)
    client = await connect(service, f"GET /v1/jobs/{job['id']}?wait=60 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())

    client.writer.transport.abort()
    await asyncio.sleep(0.1)
    waiting = asyncio.create_task(service.get(f"/v1/jobs/{job['id']}?wait=60"))
    await asyncio.sleep(1)

    assert not waiting.done()
    await service.post(f"/v1/jobs/{job['id']}/cancel")
    assert (await waiting).json["state"] == "cancelled"


async def test_lease_requests_share_max_waiters_with_long_polls(serve: Serve) -> None:
    service = await serve(limits=LimitsSection(max_waiters=2), declared={"resize": KindSettings(pull=True)})
    job = await service.submit(delay=1_000)
    ask = {"kinds": ["resize"], "wait": 60}
    held = [
        asyncio.create_task(service.post("/v1/leases", ask)),
        asyncio.create_task(service.get(f"/v1/jobs/{job['id']}?wait=60")),
    ]
    await asyncio.sleep(1)
    began_at = service.clock.now()

    empty = await service.post("/v1/leases", ask)

    assert empty.json == {"leases": []}
    assert service.clock.now() - began_at < 100_000
    await asyncio.gather(*held)


async def test_lease_request_of_a_disconnected_worker_frees_its_waiter(serve: Serve, connect: Connect) -> None:
    service = await serve(limits=LimitsSection(max_waiters=1), declared={"resize": KindSettings(pull=True)})
    body = b'{"kinds":["resize"],"wait":60}'
    head = b"POST /v1/leases HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
    client = await connect(service, head + body)

    client.writer.transport.abort()
    await asyncio.sleep(0.1)
    waiting = asyncio.create_task(service.post("/v1/leases", {"kinds": ["resize"], "wait": 60}))
    await asyncio.sleep(1)

    assert not waiting.done()
    await service.submit(kind="resize")
    assert len((await waiting).json["leases"]) == 1


async def test_job_leased_to_a_disconnected_worker_goes_to_the_next(serve: Serve, connect: Connect) -> None:
    service = await serve(declared={"resize": KindSettings(pull=True)})
    await service.submit(kind="resize")
    held = service.store.hold("claim")
    body = b'{"kinds":["resize"],"lease":600}'
    client = await connect(
        service, b"POST /v1/leases HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    )

    client.writer.transport.abort()
    await asyncio.sleep(0.1)
    held.set()
    (lease,) = (await service.post("/v1/leases", {"kinds": ["resize"], "wait": 60})).json["leases"]

    assert lease["job"]["attempt"] == 1
    assert [attempt["outcome"] for attempt in lease["job"]["attempts"]] == ["released"]


async def test_submit_of_a_disconnected_client_stops_waiting_for_room(serve: Serve, connect: Connect) -> None:
    service = await serve(queues={"default": QueueSettings(max_backlog=1, overflow="wait")})
    job = await service.submit(delay=1_000)
    body = b'{"kind":"echo","delay":1000,"labels":{"from":"one-who-left"}}'
    head = b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    client = await connect(service, head % len(body) + body)
    await asyncio.sleep(1)

    client.writer.transport.abort()
    await asyncio.sleep(0.1)
    await service.post(f"/v1/jobs/{job['id']}/cancel")
    await asyncio.sleep(20)

    assert (await service.get("/v1/jobs?label.from=one-who-left")).json["jobs"] == []


async def test_submits_waiting_for_room_share_max_waiters_with_long_polls(serve: Serve) -> None:
    service = await serve(
        limits=LimitsSection(max_waiters=1), queues={"default": QueueSettings(max_backlog=1, overflow="wait")}
    )
    job = await service.submit(delay=1_000)
    held = asyncio.create_task(service.get(f"/v1/jobs/{job['id']}?wait=60"))
    await asyncio.sleep(1)
    began_at = service.clock.now()

    refused = await service.post("/v1/jobs", {"kind": "echo"})

    assert (refused.status, refused.code) == (429, "backlog_full")
    assert service.clock.now() - began_at < 100_000
    await held


async def test_unknown_methods_are_counted_as_one(service: Served) -> None:
    for method in ("BREW", "PURGE", "MKCOL", "LOCK"):
        await service.raw(f"{method} /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())

    counted = {method for method, _, _ in service.node.metrics.requests.values}
    assert counted <= {"GET", "other"}
