"""What commands print on a terminal, into a pipe and as JSON."""

from __future__ import annotations

import json

import pytest

from erelong import Client
from erelong.cli.console.output import Output
from tests.cli.conftest import Erelong, Terminal

pytestmark = pytest.mark.timeout(60)


def test_terminal_gets_a_table_with_relative_times_and_colours(terminal: Terminal, client: Client, queue: str) -> None:
    client.submit("echo", {"fail": "x"}, queue=queue, retry={"max_attempts": 1}).wait(timeout=10)
    client.submit("echo", queue=queue, delay="3h", key="a-key")

    screen = terminal("list", "--queue", queue, size=(100, 40))

    assert screen.wait() == 0
    header, waiting, failed = screen.screen.splitlines()
    assert header.split()[:5] == ["ID", "KIND", "QUEUE", "STATE", "DUE_AT"]
    assert "scheduled  in 3 h, " in waiting
    assert "\x1b[31m" in screen.text
    assert header.index("STATE") == waiting.index("scheduled") == failed.index("failed")


def test_table_is_cut_at_the_width_of_the_terminal(terminal: Terminal, client: Client, queue: str) -> None:
    client.submit("echo", queue=queue, delay="3h")

    screen = terminal("list", "--queue", queue, size=(50, 40))

    assert screen.wait() == 0
    assert max(map(len, screen.screen.splitlines())) <= 50


@pytest.mark.parametrize("options", [{"NO_COLOR": "1"}, {"NO_COLOR": "1", "CLICOLOR_FORCE": "1"}])
def test_no_color_turns_colours_off(terminal: Terminal, client: Client, queue: str, options: dict[str, str]) -> None:
    client.submit("echo", queue=queue).wait(timeout=10)

    screen = terminal("list", "--queue", queue, **options)

    assert screen.wait() == 0
    assert "\x1b" not in screen.text


def test_colours_can_be_forced_into_a_pipe(
    erelong: Erelong, client: Client, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.submit("echo", queue=queue).wait(timeout=10)
    plain = erelong("list", "--queue", queue).out
    monkeypatch.setenv("CLICOLOR_FORCE", "1")

    assert "\x1b" not in plain
    assert erelong("list", "--queue", queue).out == f"\x1b[32m{plain[:-1]}\x1b[0m\n"


def test_pipe_gets_absolute_times_and_whole_values(erelong: Erelong, client: Client, queue: str) -> None:
    job = client.submit("echo", {"text": "x" * 500}, queue=queue, delay="1h")

    shown = dict(line.split("\t", 1) for line in erelong("get", job.id).out.splitlines())

    assert shown["due_at"] == job.raw["due_at"]
    assert shown["params"] == json.dumps({"text": "x" * 500}, separators=(",", ":"))


def test_utc_shows_times_in_utc(terminal: Terminal, client: Client, queue: str) -> None:
    job = client.submit("echo", queue=queue, at="2027-03-01T09:00:00+02:00")

    local = terminal("get", job.id, TZ="Asia/Tokyo")
    utc = terminal("get", job.id, "--utc", TZ="Asia/Tokyo")

    assert (local.wait(), utc.wait()) == (0, 0)
    assert "2027-03-01 16:00:00" in local.screen
    assert "2027-03-01 07:00:00" in utc.screen


def test_empty_listing_says_so_on_a_terminal(terminal: Terminal, queue: str) -> None:
    screen = terminal("list", "--queue", queue)

    assert screen.wait() == 0
    assert screen.screen.strip() == "none"


def test_control_characters_do_not_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    item = {"id": "\x1b[31m\tred\n\x9b2J"}
    Output(is_json=False, fields=None, is_quiet=False, is_utc=True).rows([item], ("id",))
    Output(is_json=True, fields=None, is_quiet=False, is_utc=True).rows([item], ("id",))

    plain, encoded = capsys.readouterr().out.splitlines()
    assert plain == "?[31m red ?2J"
    assert encoded == '{"id":"\\u001b[31m\\tred\\n\\u009b2J"}'
    assert json.loads(encoded) == item


def test_results_and_messages_are_apart(erelong: Erelong, client: Client, queue: str) -> None:
    job = client.submit("echo", queue=queue, delay="1h")

    ended = erelong("get", job.id, "gone", "-q")

    assert ended.out == f"{job.id}\n"
    assert ended.err.startswith("erelong: gone: ")
