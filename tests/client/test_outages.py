"""What a client says of a service that it cannot reach."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager

import pytest

from erelong import AsyncClient, NoAnswer
from erelong.client.requests import Answer, Cut, Request, get


class AwayUntil:
    """A service that cannot be reached before an instant, on a clock that only its pauses move."""

    def __init__(self, at: float, *, is_sent: bool = False) -> None:
        self.at = at
        self.now = 0.0
        self.is_sent = is_sent

    async def send(self, request: Request, timeout: float) -> Answer:
        self.now += 0.01
        if self.now < self.at:
            raise Cut("no connection to http://service.example", is_sent=self.is_sent)
        return Answer(200, {}, b"{}")

    def stream(self, request: Request, silence: float) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        raise NotImplementedError

    def tick(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds

    async def close(self) -> None:
        pass


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "erelong.client"]


async def test_client_says_once_that_it_keeps_trying(caplog: pytest.LogCaptureFixture) -> None:
    service = AwayUntil(60.0)
    client = AsyncClient("http://service.example", timeout=80.0, transport=service)

    await client.send(get("/v1/me"))

    assert warnings(caplog) == ["no connection to http://service.example; retrying"]
    assert caplog.records[0].levelno == logging.WARNING


async def test_each_outage_is_told(caplog: pytest.LogCaptureFixture) -> None:
    service = AwayUntil(60.0)
    client = AsyncClient("http://service.example", timeout=80.0, transport=service)
    await client.send(get("/v1/me"))
    service.at = service.now + 60.0

    await client.send(get("/v1/me"))

    assert len(warnings(caplog)) == 2


async def test_requests_of_one_outage_share_the_warning(caplog: pytest.LogCaptureFixture) -> None:
    service = AwayUntil(1e9)
    client = AsyncClient("http://service.example", timeout=30.0, transport=service)

    for _ in range(3):
        with pytest.raises(NoAnswer):
            await client.send(get("/v1/me"))

    assert len(warnings(caplog)) == 1


@pytest.mark.parametrize(
    ("service", "is_retrying"),
    [(AwayUntil(0.5), True), (AwayUntil(1e9, is_sent=True), True), (AwayUntil(1e9), False)],
    ids=["short", "reached", "without retries"],
)
async def test_nothing_is_said_of(service: AwayUntil, is_retrying: bool, caplog: pytest.LogCaptureFixture) -> None:
    client = AsyncClient("http://service.example", timeout=30.0, retries=is_retrying, transport=service)

    if service.at < 1.0:
        await client.send(get("/v1/me"))
    else:
        with pytest.raises(NoAnswer):
            await client.send(get("/v1/me"))

    assert warnings(caplog) == []
