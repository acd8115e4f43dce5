"""The commands that use a service: what they do, what they print, and their exit codes."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from erelong import Client, Draft
from erelong.cli import commands
from erelong.cli.client.output import Output
from tests.cli.conftest import Erelong

pytestmark = pytest.mark.timeout(30)

Program = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def queue() -> str:
    """A queue of this test alone, since tests share the service."""
    return f"q-{secrets.token_hex(4)}"


# submit and read


def test_submit_prints_the_id_for_a_pipe(erelong: Erelong, client: Client, queue: str) -> None:
    ended = erelong(
        *("submit", "echo", "text=hi", "n:=7", "a.b.c=x", "--in", "2h", "--queue", queue, "--label", "tenant=t1"),
        *("--priority", "3", "--retry", "max_attempts=2", "--retry", "delay=1m", "--key", "order-7"),
    )

    job = client.get(ended.out.strip())
    assert ended.code == 0
    assert job.params == {"text": "hi", "n": 7, "a": {"b": {"c": "x"}}}
    assert (job.queue, job.labels, job.priority, job.key) == (queue, {"tenant": "t1"}, 3, "order-7")
    assert (job.retry["max_attempts"], job.retry["delay"]) == (2, 60.0)


def test_params_come_from_files_and_standard_input(erelong: Erelong, client: Client, tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("long text")
    (tmp_path / "t.json").write_text("[1, 2]")

    files = erelong("submit", "echo", f"text=@{tmp_path}/t.txt", f"list:=@{tmp_path}/t.json", "--in", "1h")
    stdin = erelong("submit", "echo", "-", "--in", "1h", stdin='{"n": 1}')

    assert client.get(files.out.strip()).params == {"text": "long text", "list": [1, 2]}
    assert client.get(stdin.out.strip()).params == {"n": 1}


def test_local_time_takes_a_zone(erelong: Erelong, client: Client) -> None:
    ended = erelong("submit", "echo", "--at", "2027-03-01T09:00:00", "--zone", "Europe/Berlin")

    assert client.get(ended.out.strip()).raw["execute_at"] == "2027-03-01T08:00:00.000Z"


def test_submit_can_wait_for_the_end(erelong: Erelong) -> None:
    good = erelong("submit", "echo", "n:=1", "--wait", "--json")
    bad = erelong("submit", "echo", "fail=boom", "--retry", "max_attempts=1", "--wait=10s")

    assert (good.code, json.loads(good.out)["result"]) == (0, {"n": 1})
    assert bad.code == 3
    assert "failed: exception: boom" in bad.err


def test_check_stores_nothing(erelong: Erelong, client: Client, queue: str) -> None:
    good = erelong("submit", "echo", "--queue", queue, "--check")
    bad = erelong("submit", "http", "url=ftp://x", "--check")

    assert (good.code, good.out, bad.code) == (0, "", 1)
    assert "/params/url" in bad.err
    assert [*client.list(queue=queue)] == []


def test_get_shows_each_job_and_names_missing_ones(erelong: Erelong, client: Client) -> None:
    job = client.submit("echo", {"n": 1}, delay="1h")

    ended = erelong("get", job.id, "nonsense", "--json")

    assert ended.code == 5
    assert json.loads(ended.out)["params"] == {"n": 1}
    assert "nonsense: no job" in ended.err
    assert "(job_not_found)" in ended.err


def test_list_prints_columns_for_pipes_and_objects_as_lines(erelong: Erelong, client: Client, queue: str) -> None:
    jobs = [client.submit("echo", {"n": n}, queue=queue, delay="1h") for n in range(3)]

    plain = erelong("list", "--queue", queue)
    ids = erelong("list", "--queue", queue, "-q", "--limit", "2")
    fields = erelong("list", "--queue", queue, "--fields", "id,params", "--json")

    first = plain.out.splitlines()[0].split("\t")
    assert first[:5] == [jobs[2].id, "echo", queue, "scheduled", jobs[2].raw["due_at"]]
    assert ids.out.splitlines() == [jobs[2].id, jobs[1].id]
    assert json.loads(fields.out.splitlines()[0]) == {"id": jobs[2].id, "params": {"n": 2}}


def test_wait_has_an_exit_code_for_each_end(erelong: Erelong, client: Client) -> None:
    good, late = client.submit("echo"), client.submit("echo", delay="1h")
    bad = client.submit("echo", {"fail": "x"}, retry={"max_attempts": 1})

    assert erelong("wait", good.id).code == 0
    assert erelong("wait", good.id, bad.id).code == 3
    assert erelong("wait", good.id, "nonsense").code == 5
    assert erelong("wait", late.id, "--timeout", "0.1").code == 124
    assert erelong("wait", "--for", "first", good.id, late.id).code == 0


def test_explain_says_why_a_job_waits(erelong: Erelong, client: Client) -> None:
    ended = erelong("explain", client.submit("echo", delay="1h").id)

    assert ended.code == 0
    assert "  time: " in ended.out


# change


def test_jobs_are_changed_by_id(erelong: Erelong, client: Client) -> None:
    id = client.submit("echo", {"n": 1}, delay="1h").id

    codes = [
        erelong("reschedule", id, "--in", "2h").code,
        erelong("edit", id, "--set", "priority=4", "--param", "n:=2").code,
        erelong("cancel", "-", "--reason", "no more", stdin=f"{id}\trest of a row\n").code,
        erelong("retry", id).code,
        erelong("wait", id).code,
        erelong("delete", id).code,
    ]

    assert codes == [0] * 6
    assert erelong("get", id).code == 5


def test_wrong_state_is_a_conflict(erelong: Erelong, client: Client) -> None:
    job = client.submit("echo")
    job.result(timeout=10)

    ended = erelong("run", job.id)

    assert ended.code == 6
    assert "(wrong_state)" in ended.err


def test_many_jobs_need_a_bound_without_a_terminal(erelong: Erelong, client: Client, queue: str) -> None:
    list(client.submit_many([Draft("echo", queue=queue, delay="1h")] * 3))

    asked = erelong("cancel", "--queue", queue)
    refused = erelong("cancel", "--queue", queue, "--yes", "--at-most", "2")
    left = client.queue(queue).get().counts["scheduled"]
    done = erelong("cancel", "--queue", queue, "--yes", "--at-most", "3", "--reason", "enough")

    assert (asked.code, refused.code, left, done.code) == (2, 6, 3, 0)
    assert "3 jobs match" in asked.err
    assert "--yes --at-most 3" in asked.err
    assert "cancel: succeeded, 3 done" in done.err
    assert client.queue(queue).get().counts["cancelled"] == 3


def test_many_jobs_are_moved_and_counted(erelong: Erelong, client: Client, queue: str) -> None:
    job = client.submit("echo", queue=queue, delay="1h")

    counted = erelong("reschedule", "--queue", queue, "--by", "30m", "--check")
    moved = erelong("reschedule", "--queue", queue, "--by", "30m", "--yes", "--at-most", "1")

    due_at, before = client.get(job).due_at, job.due_at
    assert (counted.code, moved.code) == (0, 0)
    assert due_at is not None
    assert before is not None
    assert (due_at - before).total_seconds() == 1_800


@pytest.mark.parametrize(
    "line",
    [
        "cancel",
        "cancel x --queue q",
        "reschedule x",
        "reschedule x --in 1h --at 2h",
        "edit x",
        "queue q set",
        "queue q pause concurrency=3",
        "schedule s put",
        "submit echo nonsense",
        "submit echo --zone UTC",
        "wait x --timeout soon",
        "list --state odd",
    ],
)
def test_arguments_that_do_not_fit_are_a_usage_error(erelong: Erelong, line: str) -> None:
    ended = erelong(*line.split())

    assert (ended.code, ended.out) == (2, "")
    assert ended.err


# queues, schedules, the service


def test_queue_is_set_paused_and_purged(erelong: Erelong, client: Client, queue: str) -> None:
    client.submit("echo", queue=queue, delay="1h")

    assert erelong("queue", queue, "set", "concurrency=3", "rate.per_second=50").code == 0
    assert erelong("queue", queue, "pause", "--reason", "why").code == 0
    state = json.loads(erelong("queue", queue, "--json").out)
    assert (state["settings"]["concurrency"], state["settings"]["rate"]["per_second"]) == (3, 50.0)
    assert (state["paused"], state["pause"]["reason"]) == (True, "why")
    assert erelong("queue", queue, "purge").code == 2
    assert "1 jobs cancelled" in erelong("queue", queue, "purge", "--yes").err
    assert erelong("queue", queue, "reset").code == 0
    assert queue in erelong("queues", "-q").out.splitlines()


def test_schedule_is_put_triggered_and_deleted(erelong: Erelong, queue: str) -> None:
    put = erelong("schedule", queue, "put", "n:=1", "--kind", "echo", "--queue", queue, "--cron", "0 9 * * MON-FRI")
    preview = erelong("schedule", queue, "preview", "--count", "3")

    assert (put.code, len(preview.out.splitlines())) == (0, 3)
    assert "At 09:00" in erelong("schedules", "--queue", queue).out
    assert erelong("schedule", queue, "trigger", "-q").out.strip()
    assert erelong("schedule", queue, "pause", "--reason", "why").code == 0
    assert erelong("schedule", queue, "delete").code == 0
    assert erelong("schedule", queue).code == 5


def test_service_shows_its_kinds_status_and_key(erelong: Erelong) -> None:
    http = erelong("kinds", "http")

    assert {"echo", "http"} <= {*erelong("kinds", "-q").out.split()}
    assert "erelong submit http url=…" in http.err
    assert "checks are ok" in erelong("status").out
    assert json.loads(erelong("whoami", "--json").out)["anonymous"] is True
    assert erelong("kinds", "nonsense").code == 2


def test_api_sends_any_request(erelong: Erelong, client: Client) -> None:
    ended = erelong("api", "POST", "/v1/jobs", "kind=echo", "delay=1h", "params.n:=3")

    assert client.get(json.loads(ended.out)["id"]).params == {"n": 3}
    assert json.loads(erelong("api", "GET", "/v1/jobs", "limit=1").out)["next"]
    assert erelong("api", "GET", "/nonsense").code == 5


def test_tail_prints_events_as_they_happen(program: Program, client: Client, queue: str) -> None:
    process = program("tail", "--queue", queue, "--type", "job.succeeded", "--limit", "1")
    while process.poll() is None:
        client.submit("echo", queue=queue)
        try:
            out, _ = process.communicate(timeout=0.3)
        except subprocess.TimeoutExpired:
            continue

    assert process.returncode == 0
    assert out.startswith("job.succeeded\t")


def test_work_runs_a_worker_of_a_module(program: Program, client: Client, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from erelong import Worker\nworker = Worker()\n"
        "@worker.kind('pulled')\ndef pulled(n: int) -> int:\n    return 2 * n\n"
    )
    process = program("work", "mine:worker", "--concurrency", "2")

    result = client.submit("pulled", {"n": 4}).result(timeout=20)
    process.terminate()
    _, err = process.communicate(timeout=20)

    assert (result, process.returncode) == (8, 0)
    assert "attempt_started kind=pulled" in err


@pytest.mark.parametrize(("worker", "message"), [("gone:worker", "no module 'gone'"), ("mine", "write MODULE:WORKER")])
def test_work_names_what_it_cannot_load(erelong: Erelong, worker: str, message: str) -> None:
    ended = erelong("work", worker)

    assert ended.code == 2
    assert message in ended.err


# bad days


def test_service_that_is_away_is_69(erelong: Erelong) -> None:
    ended = erelong("get", "x", "--url", "http://127.0.0.1:9", "--request-timeout", "0.2")

    assert ended.code == 69
    assert "no connection to http://127.0.0.1:9" in ended.err


def test_closed_pipe_is_quiet(program: Program, client: Client, queue: str) -> None:
    list(client.submit_many([Draft("echo", {"text": "x" * 500}, queue=queue, delay="1h")] * 2_000))
    process = program("list", "--queue", queue, "--all", "--json")
    assert process.stdout is not None
    assert process.stderr is not None

    process.stdout.readline()
    process.stdout.close()

    assert process.wait(20) == 141
    assert process.stderr.read() == ""


def test_interrupt_is_130(program: Program) -> None:
    process = program("tail")
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(1.0)
    process.send_signal(2)

    assert process.wait(10) == 130


def test_unknown_command_suggests_one(erelong: Erelong) -> None:
    ended = erelong("subit")

    assert (ended.code, ended.out) == (2, "")
    assert ended.err == "erelong: no command 'subit'; did you mean submit?\n"


def test_help_lists_every_command(erelong: Erelong) -> None:
    ended = erelong("--help")

    assert ended.code == 0
    assert all(f"\n  {name} " in ended.out for name in commands.COMMANDS)


@pytest.mark.parametrize("name", [name for name, command in commands.COMMANDS.items() if command.module != "parser"])
def test_each_command_has_help(erelong: Erelong, name: str) -> None:
    ended = erelong(name, "--help")

    assert ended.code == 0
    assert f"usage: erelong {name}" in ended.out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_commands_options_and_choices(erelong: Erelong, shell: str) -> None:
    script = erelong("completion", shell).out

    assert "reschedule" in script
    assert "on-conflict" in script
    assert "purge" in script


def test_completion_completes_in_bash(erelong: Erelong) -> None:
    script = erelong("completion", "bash").out
    line = 'COMP_WORDS=(erelong {0}); COMP_CWORD={1}; _erelong; echo "${{COMPREPLY[@]}}"'

    def complete(words: str, number: int) -> str:
        return subprocess.run(
            ["bash", "-c", script + line.format(words, number)], capture_output=True, text=True, check=True
        ).stdout.strip()

    assert complete("resch", 1) == "reschedule"
    assert complete("submit --on", 2) == "--on-conflict"
    assert complete("queue mail pau", 3) == "pause"


# output


class Terminal(Output):
    """Output to a terminal that is not there."""

    def __init__(self) -> None:
        super().__init__(is_json=False, fields=None, is_quiet=False, is_utc=True)
        self.is_terminal = True


def test_terminal_gets_a_table_with_relative_times(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.get_terminal_size", lambda *_: os.terminal_size((60, 20)))
    rows = [{"id": "a", "state": "failed", "due_at": "2020-01-01T09:00:00.000Z", "n": 1_234_567}]

    Terminal().rows(rows * 2, ("id", "state", "due_at", "n"))

    header, row, _ = capsys.readouterr().out.splitlines()
    assert header.split() == ["ID", "STATE", "DUE_AT", "N"]
    assert "2020-01-01 09:00:00" in row
    assert " d ago" in row
    assert len(row) <= 60


def test_control_characters_do_not_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    Output(is_json=False, fields=None, is_quiet=False, is_utc=True).rows([{"id": "\x1b[31m\tred\n"}], ("id",))

    assert capsys.readouterr().out == "?[31m red \n"


# profiles


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
