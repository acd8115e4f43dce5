"""Commands that change jobs, by their ids and by conditions."""

from __future__ import annotations

import json

import pytest

from erelong import Client, Draft
from tests.cli.conftest import Erelong, Program, Terminal

pytestmark = pytest.mark.timeout(60)


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


def test_job_is_moved_to_a_local_time(erelong: Erelong, client: Client, queue: str) -> None:
    id = client.submit("echo", queue=queue, delay="1h").id

    ended = erelong("reschedule", id, "--at", "2027-03-01T09:00:00", "--zone", "Europe/Berlin")

    assert ended.code == 0
    assert client.get(id).raw["execute_at"] == "2027-03-01T08:00:00.000Z"


def test_key_of_a_queue_names_the_job_to_change(erelong: Erelong, client: Client, queue: str) -> None:
    id = client.submit("echo", queue=queue, key="k", delay="1h").id

    assert erelong("edit", "~k", "--queue", queue, "--set", "priority=4", "--set", "retry.max_attempts=9").code == 0
    assert erelong("cancel", "~k", "--queue", queue).code == 0
    assert (client.get(id).priority, client.get(id).retry["max_attempts"], client.get(id).state) == (4, 9, "cancelled")


def test_version_guards_a_change(erelong: Erelong, client: Client, queue: str) -> None:
    job = client.edit(client.submit("echo", queue=queue, delay="1h"), priority=1)

    stale = erelong("cancel", job.id, "--version", "1")
    fresh = erelong("cancel", job.id, "--version", str(job.version))

    assert (stale.code, fresh.code) == (6, 0)
    assert "(version_mismatch)" in stale.err


def test_retry_can_change_params(erelong: Erelong, client: Client, queue: str) -> None:
    job = client.submit("echo", {"fail": "x"}, queue=queue, retry={"max_attempts": 1})
    job.wait(timeout=10)

    ended = erelong("retry", job.id, "--param", "n:=1", "--set", "timeout=9")

    assert ended.code == 0
    assert client.get(job.id, wait=10).raw["result"] == {"n": 1}


def test_check_of_a_change_changes_nothing(erelong: Erelong, client: Client, queue: str) -> None:
    job = client.submit("echo", queue=queue, delay="1h")

    good = erelong("edit", job.id, "--set", "priority=4", "--check")
    bad = erelong("reschedule", job.id, "--at", "noon", "--check")

    assert (good.code, bad.code) == (0, 1)
    assert client.get(job).version == job.version


def test_each_id_gets_its_own_error(erelong: Erelong, client: Client, queue: str) -> None:
    jobs = [client.submit("echo", queue=queue, delay="1h").id for _ in range(2)]

    ended = erelong("cancel", jobs[0], "gone", jobs[1], "--json")

    assert ended.code == 5
    assert [json.loads(line)["id"] for line in ended.out.splitlines()] == jobs
    assert ended.err.startswith("erelong: gone: no job 'gone'")


def test_operations_are_listed_followed_and_stopped(erelong: Erelong, client: Client, queue: str) -> None:
    list(client.submit_many([Draft("echo", queue=queue, delay="1h")] * 300))
    operation = client.operations.cancel(queue=queue, at_most=300, rate=50)

    stopped = erelong("operations", operation.id, "--stop", "--json")
    followed = erelong("operations", operation.id, "--wait")

    assert json.loads(stopped.out)["id"] == operation.id
    assert followed.code == 1
    assert "cancel: cancelled, " in followed.err
    assert operation.id in erelong("operations", "-q").out.split()
    assert erelong("operations", "gone").code == 5
    assert erelong("operations", "--stop").code == 2


# on a terminal


def test_terminal_asks_for_the_number_of_jobs(terminal: Terminal, client: Client, queue: str) -> None:
    list(client.submit_many([Draft("echo", queue=queue, delay="1h")] * 3))
    refusing = terminal("cancel", "--queue", queue)
    refusing.wait_for("Cancel 3 jobs? Type 3 to confirm: ")
    refusing.press("no\n")
    code = refusing.wait()
    kept = client.queue(queue).get().counts["scheduled"]

    agreeing = terminal("cancel", "--queue", queue)
    shown = agreeing.wait_for("confirm: ")
    agreeing.press("3\n")

    assert (code, kept, agreeing.wait()) == (1, 3, 0)
    assert "nothing was changed" in refusing.text
    assert all(text in shown for text in ("3 jobs match", "by state: scheduled 3", f"by queue: {queue} 3"))
    assert client.queue(queue).get().counts["cancelled"] == 3


@pytest.mark.parametrize(("answer", "code", "message"), [("y", 1, "cancel: cancelled"), ("n", 130, "goes on; stop")])
def test_interrupt_asks_whether_to_stop_the_operation(
    terminal: Terminal, client: Client, queue: str, answer: str, code: int, message: str
) -> None:
    list(client.submit_many([Draft("echo", queue=queue, delay="1h")] * 1_000))
    screen = terminal("cancel", "--queue", queue, "--yes", "--at-most", "1000", "--rate", "10")
    screen.wait_for(" of 1,000 done")

    screen.press("\x03")
    screen.wait_for("Stop the operation?")
    screen.press(f"{answer}\n")

    assert screen.wait() == code
    assert message in screen.text
    for operation in client.operations.list():
        operation.cancel()


def test_interrupt_without_a_terminal_leaves_the_operation_running(
    program: Program, client: Client, queue: str
) -> None:
    list(client.submit_many([Draft("echo", queue=queue, delay="1h")] * 1_000))
    process = program("cancel", "--queue", queue, "--yes", "--at-most", "1000", "--rate", "10")
    assert process.stderr is not None
    while " of 1,000 done" not in (line := process.stderr.readline()):
        assert line
    process.send_signal(2)

    _, err = process.communicate(timeout=20)
    operation = next(client.operations.list())
    assert process.returncode == 130
    assert f"erelong operations {operation.id} --stop" in err
    assert operation.cancel().id


@pytest.mark.parametrize(
    "line",
    [
        "cancel",
        "cancel x --kind q",
        "reschedule x",
        "reschedule x --in 1h --at 2h",
        "edit x",
        "cancel x --queue q --queue r",
        "cancel x --check",
        "cancel x y --version 1",
        "cancel --queue q --version 1",
        "reschedule x --by 1h",
        "retry --queue q --param n=1",
        "queue q set",
        "queue q pause --check",
        "schedule s delete --check",
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
