"""Keys as canaries: no failure writes or shows the secret part of a key."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from io import StringIO
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from erelong.cli.parser import main
from erelong.errors import StoreUnavailable
from erelong.settings.api_keys import fingerprint_of, new_key
from erelong.telemetry import log
from tests.support.keyed import Keyed, Keys, serve_keyed
from tests.support.kinds import FakeRunner
from tests.support.process import ServiceProcess
from tests.support.served import Serve

JOB = {"kind": "echo", "delay": 1_000}


class BrokenHandler(FakeRunner):
    """A kind with a bug in its check of params."""

    def check(self, params: bytes) -> None:
        raise RuntimeError("a bug")


def canaries(*keys: str) -> list[str]:
    """Return the texts that must not appear: the secret parts and the hashes."""
    return [part for key in keys for part in (key[17:], fingerprint_of(key)[13:])]


def found(text: str, *keys: str) -> list[str]:
    return [canary for canary in canaries(*keys) if canary in text]


def test_search_for_canaries_finds_them() -> None:
    key = new_key()

    assert found(f"x {key} y", key)
    assert found(fingerprint_of(key), key)
    assert not found(fingerprint_of(key)[:12], key)


async def test_no_key_is_in_responses_or_the_log(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    keys = Keys().add("root").add("mail", queues=["mail"])
    service = await serve(auth=keys.settings(), kinds={"broken": BrokenHandler()})
    keyed = Keyed(service=service, keys=keys)
    wrong = keys.texts["root"][:17] + new_key()[17:]
    paths = ("/v1/jobs", "/v1/jobs/x", "/v1/queues", "/metrics", "/openapi.json", "/readyz", "/v1/nothing")
    bodies = (JOB, {"kind": "broken"}, {"kind": "x" * 500, "no": [1]})
    asked: list[tuple[str, str, Any]] = [("PUT", "/livez", {}), *(("GET", path, None) for path in paths)]
    asked += [("POST", "/v1/jobs", body) for body in bodies]

    texts = []
    statuses = set()
    for header in (*(f"Bearer {key}" for key in keys.texts.values()), f"Bearer {wrong}", f"Basic {wrong}", wrong):
        for method, path, body in asked:
            answer = await keyed.service.call(method, path, body, headers={"Authorization": header})
            statuses.add(answer.status)
            texts.append(f"{answer.headers} {answer.body.decode()}")
    service.store.broken["list"] = StoreUnavailable("the store is away")
    with keyed.using("root"):
        answer = await service.get("/v1/jobs")
    statuses.add(answer.status)

    assert statuses >= {200, 201, 401, 403, 404, 405, 422, 500, 503}
    assert found(" ".join([*texts, answer.body.decode()]), *keys.texts.values(), wrong) == []
    logged = " ".join(f"{record.getMessage()} {vars(record)}" for record in caplog.records)
    assert "request_failed" in logged
    assert found(logged, *keys.texts.values(), wrong) == []


async def test_failures_are_logged_with_the_peer_and_limited(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    keyed = await serve_keyed(serve, Keys().add("app"))
    forged = keyed.keys.texts["app"][:17] + new_key()[17:]

    for header in ({}, {"Authorization": f"Bearer {forged}"}, *[{"Authorization": "Bearer x"}] * 500):
        await keyed.service.get("/v1/jobs", headers=header)

    lines = [vars(record)["fields"] for record in caplog.records if record.getMessage() == "auth_failed"]
    assert 10 <= len(lines) <= 20
    assert [line["reason"] for line in lines[:3]] == ["no key", "not the key app", "unknown key"]
    assert {line["peer"] for line in lines} == {"127.0.0.1"}


async def test_suppressed_failures_are_counted_in_the_next_log_line(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    keyed = await serve_keyed(serve, Keys().add("app"))
    for _ in range(30):
        await keyed.service.get("/v1/jobs")

    await asyncio.sleep(60)
    await keyed.service.get("/v1/jobs")

    lines = [vars(record)["fields"] for record in caplog.records if record.getMessage() == "auth_failed"]
    assert (len(lines), lines[-1]["unlogged"]) == (11, 20)


def test_log_redacts_keys_from_any_source() -> None:
    key, stream = new_key(), StringIO()
    writer = log._Writer(stream)
    writer.setFormatter(log._Json())
    logger = logging.Logger("x")
    logger.addHandler(writer)

    logger.error(f"Invalid header: b'Authorization: Bearer {key}\\x00'")
    logger.error("event", extra={"fields": {"path": f"/x?key={key}"}})
    for padding in range(80):
        try:
            raise ValueError(f"{key} {'x' * (log.MAX_FIELD - padding)}")
        except ValueError as error:
            logger.error("event", exc_info=error)
    writer.close()

    assert stream.getvalue().count("\n") == 82
    assert found(stream.getvalue(), key) == []
    assert key[:17] in stream.getvalue()


# settings


def test_settings_do_not_show_hashes() -> None:
    keys = Keys().add("app")

    assert found(repr(keys.settings()) + str(keys.settings()), *keys.texts.values()) == []
    assert "app" in repr(keys.settings())


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (
            '[auth.keys.app]\nsha256 = "{key}"\nscopes = ["read"]\n',
            "config.toml:2: auth.keys.app.sha256: should be <id>",
        ),
        ('[auth.keys.app]\nsha256 = "{hash}0"\nscopes = ["read"]\n', "config.toml:2: auth.keys.app.sha256: should be"),
        ('[auth.keys]\napp = "{key}"\n', "config.toml:2: auth.keys.app = "),
        ('[auth]\nkeys = ["{key}"]\n', "config.toml:2: auth.keys = "),
        ('auth = "{key}"\n', "config.toml:1: auth = "),
        ('[auth.keys.app]\nkey = "{key}"\nscopes = ["read"]\n', "config.toml:1: auth.keys.app.sha256: is required"),
        ('[auth.keys.app]\nsha256 = "{hash}"\nscopes = ["{key}"]\n', "config.toml:3: auth.keys.app.scopes.0"),
        ('[auth.keys.app]\nsha256 = "{hash}"\nscopes = []\n', "config.toml:3: auth.keys.app.scopes = []"),
        ('[auth.keys.app]\nsha256 = "{hash}"\n', "config.toml:1: auth.keys.app.scopes: is required"),
        ('[auth.keys.app]\nsha256 = "{hash}"\nscopes = ["read"]\nqueues = []\n', "config.toml:4: auth.keys.app.queues"),
        ('[auth.keys.app]\nsha256 = "{hash}"\nscopes = ["read"]\nrate = 5\n', "config.toml:4: auth.keys.app.rate"),
        (
            '[auth.keys.a]\nsha256 = "{hash}"\nscopes = ["read"]\n[auth.keys]\n'
            'b = { sha256 = "{hash}", scopes = ["read"] }\n',
            "config.toml:5: auth.keys.b.sha256: has the same id as auth.keys.a: make a new key with new-key",
        ),
        ("[auth.keys.app]\n{key}\n", "config.toml:2: is not TOML"),
    ],
)
def test_invalid_key_setting_is_reported_without_its_secret(
    text: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    key = new_key()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.toml").write_text(text.replace("{key}", key).replace("{hash}", fingerprint_of(key)))

    assert main(["check-config"]) == 78

    output = capsys.readouterr()
    assert output.err.startswith(f"erelong: {place}")
    assert found(output.out + output.err, key) == []


# a real process


@pytest.mark.real_loop
def test_crashing_process_writes_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONFAULTHANDLER", "1")
    key, wrong = new_key(), new_key()
    entry = f'{{ sha256 = "{fingerprint_of(key)}", scopes = ["read", "submit"] }}'
    service = ServiceProcess(folder=tmp_path, settings={"log.level": "debug", "auth.keys.app": entry})
    service.start()

    for text, status in ((key, 200), (wrong, 401)):
        assert ask(service.url, text) == status
        send_noise(service.url, text)
    service.signal(signal.SIGABRT)
    assert service.wait().code == -signal.SIGABRT

    logged = service.log_text()
    assert "Fatal Python error" in logged  # in pieces, since log lines may come between
    assert found(logged, key, wrong) == []


def ask(url: str, key: str) -> int:
    request = Request(f"{url}/v1/jobs", headers={"Authorization": f"Bearer {key}"})
    try:
        with urlopen(request, timeout=5) as answer:
            return int(answer.status)
    except HTTPError as error:
        with error:
            return error.code


def send_noise(url: str, key: str) -> None:
    """Send bytes with a key that are not HTTP."""
    host, _, port = url.removeprefix("http://").partition(":")
    head = f"GET /v1/jobs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}"
    for request in (
        f"{head}\x00\r\n\r\n",
        f"{head}{'x' * 9_000}\r\n\r\n",
        f"{key} / HTTP/1.1\r\n\r\n",
        f"{head}\r\n:\r\n\r\n",
    ):
        with socket.create_connection((host, int(port)), timeout=5) as connection:
            connection.sendall(request.encode())
            while connection.recv(65_536):
                pass
