"""Commands that submit and read jobs."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from erelong import Client, Draft
from tests.cli.conftest import Erelong, Program

pytestmark = pytest.mark.timeout(30)


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


def test_text_for_a_param_of_another_type_is_refused_with_the_way_to_write_json(erelong: Erelong) -> None:
    typed = erelong("submit", "http", "url=https://a.example/", "headers=x")
    choice = erelong("submit", "http", "url=https://a.example/", "method=FOO")

    assert typed.err.endswith("headers=x is text: write headers:=… for JSON\n")
    assert ":=" not in choice.err


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
    assert erelong("wait", "--for", "any", good.id, late.id).code == 0


def test_explain_says_why_a_job_waits(erelong: Erelong, client: Client) -> None:
    ended = erelong("explain", client.submit("echo", delay="1h").id)

    assert ended.code == 0
    assert "  time: " in ended.out


def test_submit_takes_every_option_of_the_api(erelong: Erelong, client: Client, queue: str) -> None:
    ended = erelong(
        *("submit", "echo", "--in", "2h", "--queue", queue, "--timeout", "90s", "--expires-after", "10m"),
        *("--spread", "5m", "--on-finish", "https://app.example/done"),
    )
    again = [erelong("submit", "echo", "--queue", queue, "--idempotency-key", f"key-{queue}").out for _ in range(2)]

    job = client.get(ended.out.strip()).raw
    assert (job["timeout"], job["spread"], job["on_finish"]["url"]) == (90.0, 300.0, "https://app.example/done")
    assert job["expires_at"] > job["due_at"] > job["created_at"]
    assert again[0] == again[1]


def test_wait_of_a_submit_tells_the_id_when_its_time_is_over(erelong: Erelong, client: Client, queue: str) -> None:
    ended = erelong("submit", "echo", "--in", "1h", "--queue", queue, "--wait=0.1s")

    (job,) = client.list(queue=queue)
    assert (ended.code, ended.out) == (124, "")
    assert f"erelong: submitted {job.id}\n" in ended.err


def test_list_has_every_filter_of_the_api(erelong: Erelong, client: Client, queue: str) -> None:
    bad = client.submit("echo", {"fail": "boom 7"}, queue=queue, labels={"a": "b"}, retry={"max_attempts": 1})
    bad.wait(timeout=10)
    client.submit("echo", queue=queue, delay="1h", key="k")
    (cause,) = [line.split("\t")[0] for line in erelong("errors", "--queue", queue).out.splitlines()]
    before = "2020-01-01T00:00:00Z"
    after = (datetime.now(UTC) + timedelta(days=365)).isoformat()

    def ids(*options: str) -> list[str]:
        ended = erelong("list", "-q", "--queue", queue, *options)
        assert ended.code == 0, ended.err
        return ended.out.split()

    assert ids("--cause", cause) == ids("--error", "exception") == ids("--attempt-min", "1") == [bad.id]
    assert ids("--label", "a=b", "--kind", "echo", "--state", "failed", "--state", "expired") == [bad.id]
    assert ids("--finished-after", before, "--finished-before", after, "--created-after", before) == [bad.id]
    assert ids("--order", "finished_at", "--state", "failed", "--due-before", before) == []
    assert len(ids("--key", "k")) == 1
    assert len(ids("--created-before", after, "--order", "created")) == 2
    assert ids("--schedule", "gone") == []


def test_list_counts(erelong: Erelong, client: Client, queue: str) -> None:
    list(client.submit_many([Draft("echo", queue=queue, delay="1h")] * 7))

    ended = erelong("list", "--queue", queue, "--count")

    assert (ended.code, ended.out) == (0, "7\n")


def test_all_jobs_of_a_listing_are_fetched(erelong: Erelong, client: Client, queue: str) -> None:
    list(client.submit_many([Draft("echo", queue=queue, delay="1h")] * 1_200))

    assert len(erelong("list", "--queue", queue, "--all", "-q").out.split()) == 1_200
    assert len(erelong("list", "--queue", queue, "--limit", "1100", "-q").out.split()) == 1_100
    assert len(erelong("list", "--queue", queue, "-q").out.split()) == 100


def test_watch_lists_jobs_and_then_prints_each_change(program: Program, client: Client, queue: str) -> None:
    job = client.submit("echo", queue=queue, delay="1h")
    process = program("list", "--queue", queue, "--watch", "--fields", "id,state,priority")
    assert process.stdout is not None

    first = process.stdout.readline()  # the stream is open by now
    client.edit(job, priority=5)
    second = process.stdout.readline()
    client.cancel(job)
    third = process.stdout.readline()

    assert first == f"{job.id}\tscheduled\t0\n"
    assert second == f"{job.id}\tscheduled\t5\n"
    assert third == f"{job.id}\tcancelled\t5\n"


def test_watch_takes_only_what_events_can_be_selected_by(erelong: Erelong) -> None:
    ended = erelong("list", "--watch", "--cause", "x")

    assert ended.code == 2
    assert "--watch takes only --key, --kind" in ended.err


def test_key_stands_for_the_id_of_its_job_in_any_queue(erelong: Erelong, client: Client, queue: str) -> None:
    job = client.submit("echo", queue=queue, key="order/7", delay="1h")

    assert erelong("get", "~order/7", "--queue", queue, "-q").out == f"{job.id}\n"
    assert erelong("explain", "~order/7", "--queue", queue).code == 0
    assert erelong("wait", "~order/7", "--queue", queue, "--timeout", "0.1").code == 124
    assert erelong("wait", "~order/8", "--queue", queue).code == 5
    assert erelong("get", "~order/7").code == 5
    assert "; --queue names another queue" in erelong("get", "~order/7").err
    assert "; if it is a job key, write '~order/7'" in erelong("get", "order/7").err
    assert "job key, write" not in erelong("get", "0" * 26).err
