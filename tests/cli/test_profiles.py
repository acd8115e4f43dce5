"""Profiles, keys, and what commands do with every request: show it, print it as curl, ask before it."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from erelong import Client
from erelong.settings.api_keys import fingerprint_of, new_key
from tests.cli.conftest import Erelong, Terminal
from tests.support.process import ServiceProcess

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def profiles(tmp_path: Path) -> Path:
    """The file of profiles, in an empty folder."""
    file = tmp_path / "config" / "erelong" / "cli.toml"
    file.parent.mkdir(parents=True)
    return file


def test_login_stores_a_key_for_this_user_alone(erelong: Erelong, tmp_path: Path, service_url: str) -> None:
    first = erelong("login", "--name", "prod", stdin="erl_key\n")
    again = erelong("login", "--name", "prod", stdin="erl_other\n")

    file = tmp_path / "config" / "erelong" / "cli.toml"
    assert (first.code, again.code) == (0, 0)
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.read_text().count("[profiles.") == 1
    assert "erl_other" in file.read_text()
    assert erelong("whoami", "--profile", "prod").code == 0
    assert erelong("whoami", "--profile", "gone").code == 2


def test_login_leaves_what_somebody_wrote_into_the_file(erelong: Erelong, profiles: Path, service_url: str) -> None:
    written = f'# mine\n[profiles.staging]\nurl = "{service_url}"  # the test system\nkey_command = ["echo", "erl_x"]\n'
    profiles.write_text(written)

    erelong("login", stdin="erl_key\n")
    erelong("login", "--name", "two words", "--confirm", stdin="\n")
    known = erelong("logout", "--name", "gone")
    erelong("logout")
    erelong("logout", "--name", "two words")

    assert profiles.read_text() == written
    assert (known.code, "known: staging, default, two words" in known.err) == (2, True)
    assert profiles.stat().st_mode & 0o777 == 0o600
    assert erelong("whoami", "--profile", "staging").code == 0


def test_login_does_not_touch_a_file_that_it_cannot_rewrite(erelong: Erelong, profiles: Path) -> None:
    profiles.write_text('[profiles]\ndefault.url = "http://127.0.0.1:1"\n')
    inline = erelong("login", stdin="\n")
    profiles.write_text("this is not TOML")
    broken = erelong("login", stdin="\n")

    assert (inline.code, broken.code) == (2, 2)
    assert "edit it by hand" in inline.err
    assert "is not valid TOML" in broken.err
    assert profiles.read_text() == "this is not TOML"


def test_profile_of_the_environment_is_used(erelong: Erelong, profiles: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profiles.write_text('[profiles.away]\nurl = "http://127.0.0.1:9"\n')
    monkeypatch.delenv("ERELONG_URL")
    monkeypatch.setenv("ERELONG_PROFILE", "away")

    assert erelong("whoami", "--request-timeout", "0.1").code == 69
    assert erelong("open", "--print").out == "http://127.0.0.1:9/\n"


def test_profile_can_ask_before_every_change(
    erelong: Erelong, terminal: Terminal, client: Client, queue: str, profiles: Path, service_url: str
) -> None:
    profiles.write_text(f'[profiles.default]\nurl = "{service_url}"\nconfirm = true\n')
    submit = ("submit", "echo", "--queue", queue, "--in", "1h")

    alone = erelong(*submit)
    agreed = erelong(*submit, "--yes")
    read = erelong("list", "--queue", queue, "-q")
    checked = erelong(*submit, "--check")
    refused = terminal(*submit)
    refused.wait_for(f"POST /v1/jobs at {service_url}? [y/N] ")
    refused.press("n\n")
    accepted = terminal(*submit)
    accepted.wait_for("[y/N]")
    accepted.press("y\n")

    assert (alone.code, agreed.code, read.code, checked.code) == (2, 0, 0, 0)
    assert "add --yes" in alone.err
    assert (refused.wait(), accepted.wait()) == (2, 0)
    assert client.queue(queue).get().counts["scheduled"] == 2


def test_import_asks_once(terminal: Terminal, client: Client, queue: str, profiles: Path, service_url: str) -> None:
    profiles.write_text(f'[profiles.default]\nurl = "{service_url}"\nconfirm = true\n')
    file = profiles.with_name("jobs.ndjson")
    file.write_text(f'{{"kind":"echo","delay":3600,"queue":"{queue}"}}\n' * 5_000)
    screen = terminal("import", str(file))

    screen.wait_for(f"Import {file} at {service_url}? [y/N] ")
    screen.press("y\n")

    assert screen.wait() == 0
    assert client.queue(queue).get().counts["scheduled"] == 5_000


def test_verbose_shows_requests_without_the_key(erelong: Erelong, monkeypatch: pytest.MonkeyPatch, queue: str) -> None:
    monkeypatch.setenv("ERELONG_KEY", "erl_secret")

    ended = erelong("submit", "echo", "n:=1", "--in", "1h", "--queue", queue, "--verbose")

    assert "> POST http://127.0.0.1" in ended.err
    assert "> authorization: Bearer erl_…\n" in ended.err
    assert '> {"kind":"echo","params":{"n":1}' in ended.err
    assert "< 201 in " in ended.err
    assert "erl_secret" not in ended.err


def test_verbose_shows_tries_that_failed(erelong: Erelong) -> None:
    ended = erelong("whoami", "--url", "http://127.0.0.1:9", "--request-timeout", "0.3", "-v")

    assert "! no connection to http://127.0.0.1:9" in ended.err


@pytest.mark.parametrize(
    "line",
    [
        "submit echo text=it's --in 1h --queue {queue}",
        "queue {queue} pause --reason why",
        "schedule {queue} put --kind echo --every 1h",
        "cancel --queue {queue} --reason paid",
        "api POST /v1/jobs kind=echo queue={queue}",
        "api GET /v1/jobs queue={queue} limit=1",
    ],
)
def test_curl_is_a_line_for_the_shell_and_sends_nothing(
    erelong: Erelong, client: Client, queue: str, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.submit("echo", {"first": True}, queue=queue, delay="1h")
    monkeypatch.setenv("ERELONG_KEY", "erl_secret")
    before = client.queue(queue).get().raw

    ended = erelong(*line.format(queue=queue).split(), "--curl")

    assert (ended.code, client.queue(queue).get().raw["counts"]) == (0, before["counts"])
    assert "erl_secret" not in ended.out
    words = shlex.split(ended.out)
    assert words[:2] == ["curl", "-s"]
    assert "Authorization: Bearer $ERELONG_KEY" in words
    variables = {"ERELONG_KEY": "", "PATH": os.environ["PATH"]}
    answer = subprocess.run(["bash", "-c", ended.out], capture_output=True, text=True, env=variables)
    assert "code" not in json.loads(answer.stdout), answer.stdout


@pytest.fixture
def keyed(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """The address of a service that requires keys, and a key that may only read."""
    key = new_key()
    (tmp_path / "keyed").mkdir()
    config = f'[store]\nkind = "memory"\n[auth.keys.reader]\nsha256 = "{fingerprint_of(key)}"\nscopes = ["read"]\n'
    service = ServiceProcess(folder=tmp_path / "keyed", config=config)
    service.start()
    yield service.url, key
    service.kill()


def test_missing_access_is_4(erelong: Erelong, keyed: tuple[str, str], tmp_path: Path) -> None:
    url, key = keyed
    (tmp_path / "key").write_text(f"{key}\n")
    (tmp_path / "wrong").write_text(new_key())

    nobody = erelong("list", "--url", url)
    stranger = erelong("list", "--url", url, "--key-file", str(tmp_path / "wrong"))
    reader = erelong("list", "--url", url, "--key-file", str(tmp_path / "key"))
    writer = erelong("submit", "echo", "--url", url, "--key-file", str(tmp_path / "key"))

    assert (nobody.code, stranger.code, reader.code, writer.code) == (4, 4, 0, 4)
    assert "give a key with erelong login, ERELONG_KEY or --key-file" in nobody.err
    assert "submit" in writer.err


def test_login_refuses_a_wrong_key_and_stores_nothing(erelong: Erelong, keyed: tuple[str, str], profiles: Path) -> None:
    url, key = keyed

    wrong = erelong("login", "--url", url, stdin=f"{new_key()}\n")
    assert (wrong.code, profiles.exists()) == (4, False)

    right = erelong("login", "--url", url, stdin=f"{key}\n")
    assert (right.code, right.err.partition(": ")[2]) == (0, f"{url} as reader, scopes: read\n")


def test_key_is_not_sent_to_another_address(erelong: Erelong, keyed: tuple[str, str], service_url: str) -> None:
    url, key = keyed
    erelong("login", "--url", url, "--name", "keyed", stdin=f"{key}\n")

    ended = erelong("whoami", "--profile", "keyed", "--url", service_url, "--verbose")

    assert "authorization" not in ended.err
    assert erelong("whoami", "--profile", "keyed", "--url", url).code == 0
