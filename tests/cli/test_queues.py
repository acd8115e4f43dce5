"""Commands about queues, schedules, kinds and the service."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from erelong import Client
from tests.cli.conftest import Erelong, Program, Terminal

pytestmark = pytest.mark.timeout(60)


def test_queue_is_set_paused_and_purged(erelong: Erelong, client: Client, queue: str) -> None:
    client.submit("echo", queue=queue, delay="1h")

    assert erelong("queue", queue, "set", "concurrency=3", "rate.per_second=50").code == 0
    assert erelong("queue", queue, "pause", "--reason", "why").code == 0
    state = json.loads(erelong("queue", queue, "--json").out)
    assert (state["settings"]["concurrency"], state["settings"]["rate"]["per_second"]) == (3, 50.0)
    assert (state["paused"], state["pause"]["reason"]) == (True, "why")
    assert erelong("queue", queue, "purge").code == 2
    assert "1 job cancelled" in erelong("queue", queue, "purge", "--yes").err
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
    assert "erelong submit http url=https://app.example/remind json.order:=7" in http.err
    assert re.search(r"all \d+ checks are ok|  ! ", erelong("status").out)
    assert json.loads(erelong("whoami", "--json").out)["anonymous"] is True
    assert erelong("kinds", "nonsense").code == 5


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
    assert re.fullmatch(rf"\S+Z\tjob.succeeded\t\w+\techo\t{queue}\n", out)


def test_tail_shows_a_clock_on_a_terminal(terminal: Terminal, client: Client, queue: str) -> None:
    screen = terminal("tail", "--queue", queue, "--type", "job.failed", "--limit", "1")
    while screen.process.poll() is None:
        client.submit("echo", {"fail": "boom"}, queue=queue, retry={"max_attempts": 1}).wait(timeout=10)
        screen.wait_for_output(0.3)

    assert screen.wait() == 0
    assert re.fullmatch(rf"\d\d:\d\d:\d\d  job.failed      \w{{26}}  echo  {queue}  boom", screen.screen.strip())
    assert "\x1b[31m" in screen.text


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


def test_set_keeps_what_is_not_named(erelong: Erelong, queue: str) -> None:
    def settings() -> dict[str, object]:
        found: dict[str, object] = json.loads(erelong("queue", queue, "--json").out)["settings"]
        return found

    erelong("queue", queue, "set", "concurrency=3", "max_backlog=7")
    erelong("queue", queue, "set", "rate=50")
    merged = settings()
    erelong("queue", queue, "set", "concurrency=null", "rate=null")
    restored = settings()

    assert (merged["concurrency"], merged["max_backlog"], merged["rate"]) == (3, 7, {"per_second": 50.0, "burst": 50.0})
    assert (restored["concurrency"], restored["max_backlog"], restored["rate"]) == (100, 7, None)


def test_check_of_settings_stores_none(erelong: Erelong, queue: str) -> None:
    good = erelong("queue", queue, "set", "concurrency=3", "--check")
    bad = erelong("queue", queue, "set", "concurrency=-3", "--check")

    assert (good.code, bad.code, erelong("queue", queue).code) == (0, 1, 5)


def test_queues_are_ordered(erelong: Erelong, client: Client, queue: str) -> None:
    client.queue(queue).pause()
    for _ in range(3):
        client.submit("echo", queue=queue)

    assert erelong("queues", "-q").out.splitlines()[0] == queue
    names = erelong("queues", "-q", "--order", "name").out.splitlines()
    assert names == sorted(names)
    client.queue(queue).purge()


def test_schedule_is_checked_backfilled_and_filtered(erelong: Erelong, queue: str) -> None:
    put = ("schedule", queue, "put", "--kind", "echo", "--queue", queue, "--every", "1h", "--job", "priority=3")

    checked = erelong(*put, "--check", "--json")
    missing = erelong("schedule", queue)
    erelong(*put)
    span = ("--from", "2026-01-01T00:00:00Z", "--to", "2026-01-01T03:00:00Z")
    dry = erelong("schedule", queue, "backfill", *span, "--check")
    operation = erelong("schedule", queue, "backfill", *span, "-q").out.strip()

    assert (checked.code, missing.code, dry.code) == (0, 5, 0)
    assert json.loads(checked.out)["job"]["priority"] == 3
    assert erelong("operations", operation, "--wait").err == "backfill: succeeded, 3 done\n"
    assert erelong("schedules", "--queue", queue, "--paused").out == ""
    assert erelong("schedule", queue, "backfill").code == 2
    assert erelong("schedule", queue, "delete").code == 0


def test_terminal_asks_before_a_schedule_is_deleted(
    terminal: Terminal, client: Client, erelong: Erelong, queue: str
) -> None:
    erelong("schedule", queue, "put", "--kind", "echo", "--every", "1h")
    screen = terminal("schedule", queue, "delete")

    screen.wait_for("[y/N]")
    screen.press("n\n")

    assert screen.wait() == 1
    assert client.schedules.get(queue).name == queue


def test_terminal_asks_before_a_queue_is_purged(terminal: Terminal, client: Client, queue: str) -> None:
    client.submit("echo", queue=queue, delay="1h")
    screen = terminal("queue", queue, "purge")

    screen.wait_for(f"Type {queue} to cancel its 1 waiting job: ")
    screen.press("something\n")

    assert screen.wait() == 1
    assert client.queue(queue).get().counts["scheduled"] == 1


# the service as a whole


def test_due_counts_jobs_by_time(erelong: Erelong, client: Client, queue: str) -> None:
    for delay in ("30m", "90m", "90m", "30d"):
        client.submit("echo", queue=queue, delay=delay, labels={"a": "b"})

    filters = ("--queue", queue, "--kind", "echo", "--label", "a=b")
    rows = [line.split("\t") for line in erelong("due", "--by", "1h", "--bins", "3", *filters).out.splitlines()]
    found = json.loads(erelong("due", "--by", "7d", "--bins", "6", *filters, "--json").out)

    assert [rows[0], rows[-1]] == [["overdue", "0"], ["later", "1"]]
    assert sum(int(count) for _, count in rows) == 4
    assert all(re.fullmatch(r"\S+:00:00\.000Z", instant) for instant, _ in rows[1:-1])
    assert (found["step"], sum(found["counts"])) == (604_800.0, 4)


def test_due_draws_bars_on_a_terminal(terminal: Terminal, client: Client, queue: str) -> None:
    for delay in ("1s", "90m", "150m", "151m"):
        client.submit("echo", queue=queue, delay=delay)
    client.queue(queue).pause()
    screen = terminal("due", "--bins", "4", "--queue", queue, size=(40, 20))

    assert screen.wait() == 0
    lines = screen.screen.splitlines()
    assert lines[0].startswith("overdue")
    assert max(map(len, lines)) <= 40
    assert any(line.count("█") > 15 for line in lines)


def test_status_names_what_needs_attention_and_the_remedy(erelong: Erelong, client: Client, queue: str) -> None:
    client.queue(queue).pause("SMTP is down")
    client.submit("echo", queue=queue)
    pulled = client.submit("pulled", {}, queue=queue)

    text = erelong("status").out
    client.queue(queue).resume()
    client.cancel(pulled)

    assert f'queue {queue} is paused ("SMTP is down") with 2 due jobs; run: erelong queue {queue} resume' in text
    assert "no worker asks for them; run: erelong work MODULE:WORKER" in text


def test_status_in_json_is_that_of_the_api(erelong: Erelong) -> None:
    assert {"jobs", "checks", "rates"} <= {*json.loads(erelong("status", "--json").out)}


def test_dashboard_opens_in_the_browser(erelong: Erelong, service_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    def open_browser(address: str) -> bool:
        opened.append(address)
        return len(opened) < 3

    monkeypatch.setattr("webbrowser.open", open_browser)

    codes = [erelong("open").code, erelong("open", "~key/1").code, erelong("open").code]

    assert codes == [0, 0, 2]
    assert opened == [f"{service_url}/", f"{service_url}/#/jobs/~key%2F1", f"{service_url}/"]
    assert erelong("open", "--print").out == f"{service_url}/\n"


def test_help_explains_topics_and_commands(erelong: Erelong) -> None:
    assert "124  the --timeout of wait" in erelong("help", "exit-codes").out
    assert "ERELONG_KEY_FILE" in erelong("help", "environment").out
    assert "usage: erelong submit" in erelong("help", "submit").out
    assert "usage: erelong serve" in erelong("help", "serve").out
    assert erelong("help", "nonsense").code == 2
    assert erelong("help").out == erelong("--help").out
