"""What people type by mistake: the command says what to type instead, in the words of the command line."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from erelong import AsyncClient, Client, Draft, NoAnswer
from tests.cli.conftest import Erelong, Terminal
from tests.support import SOURCE

pytestmark = pytest.mark.timeout(60)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--at", "tomorrow"), '--at: "tomorrow" is not an instant'),
        (("--at", "2027-01-01T09:00:00"), "has no offset: name its zone with --zone, or append Z"),
        (("--at", "2027-01-01 9h", "--zone", "Europe/Berlin"), '--at: "2027-01-01 9h" is not a local time'),
        (("--in", "2x"), '--in: "2x" is not a duration'),
        (("--expires-after", "2x", "--in=1h"), '--expires-after: "2x" is not a duration'),
    ],
)
def test_refused_field_is_named_by_its_option(erelong: Erelong, words: tuple[str, ...], told: str) -> None:
    ended = erelong("submit", "echo", *words)

    assert ended.code == 1
    assert told in ended.err


def test_options_of_a_change_by_id_are_named_too(erelong: Erelong, client: Client, queue: str) -> None:
    job = client.submit("echo", queue=queue, delay="1h")

    ended = erelong("reschedule", job.id, "--in", "2x")

    assert '--in: "2x" is not a duration' in ended.err


def test_held_key_names_the_option(erelong: Erelong, client: Client, queue: str) -> None:
    client.submit("echo", queue=queue, key="held", delay="1h")

    ended = erelong("submit", "echo", "--queue", queue, "--key", "held")

    assert "give --on-conflict keep, replace or reschedule" in ended.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--in", "1h", "--at", "2027-01-01T00:00:00Z"), "give --in or --at, not both"),
        (("a=1", "a=2"), "a is given twice"),
        (("a.b=1", "a=2"), "a is given twice"),
        (("a=1", "a.b=2"), "a.b: a has a value already"),
        (("--label", "a=1", "--label", "a=2"), "--label a is given twice: as 1 and as 2"),
    ],
)
def test_arguments_that_contradict_one_another_are_refused(erelong: Erelong, words: tuple[str, ...], told: str) -> None:
    ended = erelong("submit", "echo", *words)

    assert (ended.code, ended.out) == (2, "")
    assert told in ended.err


def test_field_that_nothing_has_is_a_warning(erelong: Erelong, client: Client, queue: str) -> None:
    job = client.submit("echo", queue=queue, delay="1h")

    listed = erelong("list", "--queue", queue, "--fields", "id,stat,error.message")
    shown = erelong("get", job.id, "--fields", "id,nonsense")
    right = erelong("list", "--queue", queue, "--fields", "id,labels.tenant")

    assert listed.out.startswith(f"{job.id}\t")
    assert listed.err == "erelong: nothing here has a field 'stat'; did you mean state?\n"
    assert shown.err == "erelong: nothing here has a field 'nonsense'\n"
    assert right.err == ""


def test_more_jobs_than_at_most_are_counted(erelong: Erelong, client: Client, queue: str) -> None:
    list(client.submit_many([Draft("echo", queue=queue, delay="1h")] * 4))

    ended = erelong("cancel", "--queue", queue, "--yes", "--at-most", "2")

    assert ended.code == 6
    assert ended.err.endswith("erelong: 4 match, --at-most 2: nothing was changed\n")
    assert {job.state for job in client.list(queue=queue)} == {"scheduled"}


def test_id_that_could_be_a_key_gets_a_hint_from_wait(erelong: Erelong) -> None:
    ended = erelong("wait", "nosuch")

    assert (ended.code, ended.err) == (5, "erelong: no job nosuch; if it is a job key, write '~nosuch'\n")


def test_unknown_path_points_to_the_list_of_paths(erelong: Erelong, service_url: str) -> None:
    ended = erelong("api", "GET", "/v1/nosuch")

    told = f"erelong: {service_url} has no GET /v1/nosuch: check the path; {service_url}/docs lists all of them\n"
    assert (ended.code, ended.err) == (5, told)


def test_answer_of_api_ends_with_a_newline_in_a_pipe(erelong: Erelong) -> None:
    out = erelong("api", "GET", "/v1/me").out

    assert out.endswith("}\n")
    assert not out.endswith("\n\n")


def test_key_for_a_service_without_keys_is_stored_with_a_word(erelong: Erelong) -> None:
    with_key = erelong("login", stdin="erl_key\n")
    without = erelong("login", stdin="\n")

    assert "this service asks for no key: the one that you gave is stored, but not tested" in with_key.err
    assert "not tested" not in without.err


def test_plain_port_is_named_at_once(erelong: Erelong, service_url: str) -> None:
    began = time.monotonic()
    ended = erelong("status", "--url", service_url.replace("http://", "https://"))

    assert ended.code == 69
    assert f"it seems to be a plain port: write {service_url}" in ended.err
    assert time.monotonic() - began < 5


@pytest.mark.real_loop
async def test_plain_port_is_named_at_once_by_the_client_for_asyncio(service_url: str) -> None:
    began = time.monotonic()
    async with AsyncClient(service_url.replace("http://", "https://"), key="") as client:
        with pytest.raises(NoAnswer, match=f"it seems to be a plain port: write {service_url}"):
            await client.me()

    assert time.monotonic() - began < 5


def test_narrow_table_shows_where_it_is_cut(terminal: Terminal, client: Client, queue: str) -> None:
    client.submit("echo", queue=queue, delay="1h")

    screen = terminal("list", "--queue", queue, size=(40, 20))

    assert screen.wait() == 0
    assert all(len(line) == 40 and line.endswith("…") for line in screen.screen.splitlines())


def test_exported_schedules_are_counted(erelong: Erelong, client: Client, queue: str, tmp_path: Path) -> None:
    client.schedules.put(f"daily-{queue}", Draft("echo", queue=queue), cron="0 9 * * *")

    ended = erelong("export", "--schedules", "-o", str(tmp_path / "s.ndjson"))

    number = len((tmp_path / "s.ndjson").read_text().splitlines())
    assert ended.err == f"{number} schedule{'s' if number > 1 else ''} in {tmp_path / 's.ndjson'}\n"


def test_worker_of_a_file_is_refused_with_the_module(erelong: Erelong) -> None:
    ended = erelong("work", "thumbnails.py:worker")

    assert ended.code == 2
    assert "thumbnails.py:worker names a file: give the module, thumbnails:worker" in ended.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("submit", "echo", "--delay", "2h"), "; did you mean --in?; see:"),
        (("submit", "echo", "--qeueu", "x"), "; did you mean --queue?; see:"),
        (("edit", "x", "--priority", "3"), "; write --set priority=3; see: erelong edit --help"),
        (("edit", "x", "--priority=3"), "; write --set priority=3; see: erelong edit --help"),
        (("list", "--zzz"), "unrecognized arguments: --zzz; see: erelong list --help"),
        (("serve", "--prot", "1"), "unrecognized arguments: --prot 1; did you mean --port?; see: erelong serve --help"),
        (("--url", "X", "status"), "erelong: options follow the command: erelong status --url X\n"),
        (("--josn",), "erelong: options follow the command: erelong COMMAND --josn\n"),
    ],
)
def test_wrong_option_gets_a_hint(erelong: Erelong, words: tuple[str, ...], told: str) -> None:
    ended = erelong(*words)

    assert ended.code == 2
    assert told in ended.err


def test_help_of_the_service_needs_no_package(tmp_path: Path) -> None:
    script = (
        "import sys; sys.modules.update(dict.fromkeys(['pydantic', 'aiohttp', 'orjson', 'apsw']))\n"
        "from erelong.cli.commands import main\n"
        "print(main(['serve', '--help']), main(['new-key', '--help']), main(['help', 'backup']))\n"
        "print(main(['serve']), main(['new-key', '--scopes', 'read', '--name', 'x']))\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env={"PYTHONPATH": str(SOURCE)}, capture_output=True, text=True
    )

    assert ended.stdout.endswith("\n0 0 0\n78 78\n"), ended.stderr
    assert ended.stderr.count("is not installed; run: pip install 'erelong[server]'") == 2


def test_general_help_marks_what_needs_the_extra(erelong: Erelong) -> None:
    assert "The service itself, with the extra erelong[server]:\n  serve " in erelong("--help").out
