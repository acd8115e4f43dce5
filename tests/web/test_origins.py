"""Web pages: foreign pages get nothing through the browser of a user who reaches the service. /docs does."""

from __future__ import annotations

import asyncio

import pytest

from erelong.settings.sections import AuthSection, ServerSection
from tests.support.keyed import Keys, serve_keyed
from tests.support.raw_requests import answers_in
from tests.support.served import Serve, Served

PAUSE = "/v1/queues/default/pause"
OPEN = ("/livez", "/readyz", "/metrics", "/openapi.json", "/docs")
FOREIGN = {
    "a foreign page": {"Origin": "https://evil.example"},
    "a page of another port": {"Origin": "http://127.0.0.1:1"},
    "a page of the same port by another name": {"Origin": "http://localhost:{port}"},
    "a page whose name begins alike": {"Origin": "http://127.0.0.1:{port}.evil.example"},
    "a page without an origin": {"Origin": "null"},
    "an origin of nothing": {"Origin": ""},
    "a foreign image": {"Sec-Fetch-Site": "cross-site"},
    "an image of another port": {"Sec-Fetch-Site": "same-site"},
    "a word nobody knows": {"Sec-Fetch-Site": "somewhere"},
    "a foreign page that says so twice": {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"},
    "a page of another scheme": {"Origin": "http://127.0.0.1:{port}", "Sec-Fetch-Site": "cross-site"},
}
OWN = {
    "curl": {},
    "an old browser": {"Origin": "http://127.0.0.1:{port}"},
    "a browser": {"Origin": "http://127.0.0.1:{port}", "Sec-Fetch-Site": "same-origin"},
    "a browser that reads": {"Sec-Fetch-Site": "same-origin"},
    "an address typed in": {"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate"},
    "a browser before a proxy with TLS": {"Origin": "https://app.example", "Sec-Fetch-Site": "same-origin"},
}
BEYOND = ServerSection(host="0.0.0.0")
ANONYMOUS = AuthSection(allow_anonymous=True)


def filled(headers: dict[str, str], service: Served) -> dict[str, str]:
    return {name: text.format(port=service.port) for name, text in headers.items()}


async def is_paused(service: Served) -> bool:
    await service.submit(delay=1_000)
    paused: bool = (await service.get("/v1/queues/default")).json["paused"]
    return paused


# pages


@pytest.mark.parametrize("page", FOREIGN)
async def test_foreign_page_changes_and_reads_nothing(service: Served, page: str) -> None:
    headers = filled(FOREIGN[page], service)

    for answer in (await service.post(PAUSE, headers=headers), await service.get("/v1/jobs", headers=headers)):
        assert (answer.status, answer.code) == (403, "forbidden")
        assert not [name for name in answer.headers if name.startswith("Access-Control-")]
    assert not await is_paused(service)


@pytest.mark.parametrize("client", OWN)
async def test_own_page_and_other_clients_may_do_everything(service: Served, client: str) -> None:
    headers = filled(OWN[client], service)

    assert (await service.post("/v1/jobs", {"kind": "echo"}, headers=headers)).status == 201
    assert (await service.get("/v1/jobs", headers=headers)).status == 200
    assert (await service.post(PAUSE, headers=headers)).status == 200
    assert await is_paused(service)


async def test_refused_page_gets_the_reason_and_the_remedy(service: Served) -> None:
    by_origin = await service.post(PAUSE, headers={"Origin": "https://evil.example"})
    by_site = await service.get("/v1/jobs", headers={"Sec-Fetch-Site": "cross-site"})

    assert by_origin.json["detail"] == (
        "cross-origin request refused (Origin: 'https://evil.example'); use /docs, type the address into the browser, "
        "or leave the header out if the client is not a browser"
    )
    assert "Sec-Fetch-Site: 'cross-site'" in by_site.json["detail"]


async def test_preflight_request_is_refused(service: Served) -> None:
    headers = {"Origin": "https://evil.example", "Access-Control-Request-Method": "PUT"}

    answer = await service.call("OPTIONS", "/v1/queues/default", headers=headers)

    assert (answer.status, answer.code) == (405, "method_not_allowed")
    assert not [name for name in answer.headers if name.startswith("Access-Control-")]


async def test_key_gives_a_foreign_page_no_access(serve: Serve) -> None:
    keyed = await serve_keyed(serve, Keys().add("root"))

    with keyed.using("root") as service:
        assert (await service.post(PAUSE, headers={"Origin": "https://evil.example"})).code == "forbidden"
        assert (await service.post(PAUSE, headers=filled(OWN["a browser"], service))).status == 200
        assert (await service.post(PAUSE, headers={"Host": "app.example"})).status == 200


# names


async def ask(service: Served, host: str | None, version: str = "1.1") -> tuple[int, bytes]:
    lines = f"GET /v1/queues HTTP/{version}\r\nConnection: close\r\n" + ("" if host is None else f"Host: {host}\r\n")
    (answer,) = answers_in(await service.raw(f"{lines}\r\n".encode()))
    return answer.status, answer.body


ADDRESSES = ["127.0.0.1", "127.0.0.1:8080", "localhost", "LocalHost:8080", "[::1]", "[::1]:8080", "10.0.0.7:80", "[::]"]
PRIVATE = ["erelong", "erelong:8080", "jobs_1", "erelong.jobs.svc.cluster.local:8080", "erelong.corp.internal"]
NAMES = [
    "evil.example",
    "evil.example:8080",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "evil.example.",
    "a.localhost",
    "evil.local.example",
    "[evil]",
    "[evil.example]",
    "[::1].evil.example",
    "[::1",
    "::1",
    "127.0.0.1@evil.example",
    "évil.example",
    "",
]


@pytest.mark.parametrize("host", ADDRESSES)
async def test_request_by_address_is_answered(serve: Serve, host: str) -> None:
    for settings in ({}, {"server": BEYOND, "auth": ANONYMOUS}):
        assert (await ask(await serve(**settings), host))[0] == 200


@pytest.mark.parametrize("host", [*NAMES, *PRIVATE])
async def test_rebound_name_reads_nothing(service: Served, host: str) -> None:
    status, body = await ask(service, host)

    assert status in (400, 403)
    assert b'"queues"' not in body


@pytest.mark.parametrize("host", PRIVATE)
async def test_name_without_an_owner_is_answered_beyond_loopback(serve: Serve, host: str) -> None:
    assert (await ask(await serve(server=BEYOND, auth=ANONYMOUS), host))[0] == 200


@pytest.mark.parametrize("host", NAMES)
async def test_name_with_an_owner_reads_nothing_beyond_loopback(serve: Serve, host: str) -> None:
    status, body = await ask(await serve(server=BEYOND, auth=ANONYMOUS), host)

    assert status in (400, 403)
    assert b'"queues"' not in body


async def test_refused_name_gets_the_reason_and_the_remedy(serve: Serve) -> None:
    _, here = await ask(await serve(), "evil.example:80")
    _, beyond = await ask(await serve(server=BEYOND, auth=ANONYMOUS), "evil.example:80")

    assert b"refused Host: 'evil.example:80', which a web page may have made to point here" in here
    assert b"without an API key only localhost and addresses are allowed" in here
    assert b"only addresses, names without a dot, *.local and *.internal are allowed" in beyond
    assert b"use the address, have the proxy send it as Host, or make an API key with new-key" in here


async def test_page_under_a_rebound_name_is_refused(service: Served) -> None:
    name = f"evil.example:{service.port}"

    assert (await service.post(PAUSE, headers={"Host": name, "Origin": f"http://{name}"})).code == "forbidden"
    assert not await is_paused(service)


async def test_client_without_a_host_is_not_a_browser(service: Served) -> None:
    assert (await ask(service, None, version="1.0"))[0] == 200
    assert (await ask(service, None, version="1.1"))[0] == 400  # HTTP/1.1 requires one


async def test_host_is_checked_only_for_callers_without_a_key(serve: Serve) -> None:
    keyed = await serve_keyed(serve, Keys().add("root"), allow_anonymous=True)
    named = {"Host": "app.example"}

    assert (await keyed.service.get("/v1/jobs", headers=named)).code == "forbidden"
    with keyed.using("root") as service:
        assert (await service.get("/v1/jobs", headers=named)).status == 200


async def test_missing_key_is_reported_before_the_host(serve: Serve) -> None:
    keyed = await serve_keyed(serve, Keys().add("root"))

    assert (await keyed.service.get("/v1/jobs", headers={"Host": "evil.example"})).code == "unauthenticated"


# open routes


@pytest.mark.parametrize("path", OPEN)
async def test_probe_is_answered_for_any_host_and_page(service: Served, path: str) -> None:
    for headers in ({"Host": "probe.example:80"}, {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}):
        assert (await service.get(path, headers=headers)).status == 200


async def test_foreign_page_gets_no_detail_of_readiness(service: Served) -> None:
    assert "checks" in (await service.get("/readyz")).json
    for headers in ({"Host": "evil.example"}, {"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        assert "checks" not in (await service.get("/readyz", headers=headers)).json


@pytest.mark.parametrize(("header", "status"), [("", 100), ("Origin: https://evil.example\r\n", 403)])
async def test_body_of_a_foreign_page_is_not_requested(service: Served, header: str, status: int) -> None:
    head = f"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\n{header}Expect: 100-continue\r\nContent-Length: 50\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
    writer.write(head.encode())

    assert (await reader.readline()).startswith(b"HTTP/1.1 %d " % status)

    writer.close()
