"""The bytes of a response."""

from __future__ import annotations

from email.utils import parsedate_to_datetime

import pytest

from tests.support.raw_requests import answers_in
from tests.support.served import Served


async def raw(service: Served, line: str, *headers: str) -> bytes:
    return await service.raw("\r\n".join([line, "Host: localhost", *headers, "", ""]).encode())


@pytest.mark.parametrize(
    ("line", "header", "connection"),
    [("GET /livez HTTP/1.1", "Connection: close", "close"), ("GET /livez HTTP/1.0", "Accept: */*", None)],
)
async def test_connection_header_is_sent_if_it_differs_from_the_default(
    service: Served, line: str, header: str, connection: str | None
) -> None:
    (answer,) = answers_in(await raw(service, line, header))

    assert (answer.status, answer.headers.get("Connection"), answer.body) == (200, connection, b'{"live":true}')


async def test_http_1_0_gets_a_keep_alive_header(service: Served) -> None:
    kept = b"GET /livez HTTP/1.0\r\nHost: localhost\r\nConnection: keep-alive\r\n\r\n"
    last = b"GET /livez HTTP/1.0\r\nHost: localhost\r\n\r\n"

    first, second = answers_in(await service.raw(kept + last))

    assert (first.headers.get("Connection"), second.headers.get("Connection")) == ("keep-alive", None)


async def test_responses_have_a_date(service: Served) -> None:
    (answer,) = answers_in(await raw(service, "GET /livez HTTP/1.1", "Connection: close"))

    assert parsedate_to_datetime(answer.headers["Date"]).tzinfo is not None
    assert answer.headers["Date"].endswith(" GMT")


async def test_head_sends_the_length_and_no_body(service: Served) -> None:
    text = await raw(service, "HEAD /livez HTTP/1.1", "Connection: close")

    assert b"\r\nContent-Length: 13\r\n" in text
    assert text.endswith(b"\r\n\r\n")


async def test_204_and_304_have_no_length(service: Served) -> None:
    job = await service.submit(delay=9)
    path = f"/v1/jobs/{job['id']}"

    same = await raw(service, f"GET {path} HTTP/1.1", 'If-None-Match: "1"', "Connection: close")
    gone = await raw(service, f"DELETE {path} HTTP/1.1", "Connection: close")

    for text, status in ((same, b"304 Not Modified"), (gone, b"204 No Content")):
        assert text.startswith(b"HTTP/1.1 " + status + b"\r\n")
        assert b"Content-Length" not in text
        assert b"Content-Type" not in text
