"""The recipes, run as they stand on their pages. A test changes addresses and times, and nothing else."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from erelong.model.retry import RetryPolicy, wait
from tests.docs import recipes_pages, recipes_stage
from tests.docs.recipes_pages import NoRunnerError
from tests.docs.recipes_receiver import Call
from tests.docs.recipes_stage import Stage

MOST_LINES = 150
RUN_HERE = {"debounce", "remind-unless-paid", "retry-for-a-day"}
RUN_BESIDE = {"django", "fastapi", "worker"}  # test_recipes_<name>.py runs their Python files


@pytest.fixture(scope="module")
def running_stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with recipes_stage.running(tmp_path_factory.mktemp("recipes")) as stage:
        yield stage


@pytest.fixture
def stage(running_stage: Stage) -> Stage:
    running_stage.receiver.reset()
    return running_stage


# all pages


def test_every_recipe_has_tests() -> None:
    assert set(recipes_pages.names()) == RUN_HERE | RUN_BESIDE


@pytest.mark.parametrize("name", recipes_pages.names())
def test_every_block_of_a_recipe_has_a_runner(name: str) -> None:
    page = recipes_pages.read(name)

    assert page.modules
    assert len((recipes_pages.FOLDER / f"{name}.md").read_text(encoding="utf-8").splitlines()) <= MOST_LINES


@pytest.mark.parametrize(
    "block",
    [
        "```ruby\nputs 1\n```",
        "```\nls\n```",
        "```python\nprint(1)\n```",
        "```console\nls\n```",
        "  ```console\n$ ls\n  ```",
    ],
)
def test_block_without_a_runner_fails(block: str) -> None:
    with pytest.raises(NoRunnerError):
        recipes_pages.parse("page", f"text\n\n{block}\n")


def test_index_lists_every_recipe() -> None:
    index = (recipes_pages.FOLDER / "README.md").read_text(encoding="utf-8")

    assert all(f"({name}.md)" in index for name in recipes_pages.names())


@pytest.mark.parametrize(
    ("name", "block"),
    [(name, block) for name in sorted(RUN_HERE | {"worker"}) for block in recipes_pages.read(name).consoles],
)
def test_console_lines_print_the_output_that_is_shown(stage: Stage, name: str, block: str) -> None:
    recipes_pages.read(name).write(stage.folder)

    with stage.console() as console:
        console.run(block)


# remind unless paid


class Shop(ModuleType):
    """The rest of the application, which the page imports."""

    def __init__(self) -> None:
        super().__init__("shop")
        self.paid: set[int] = set()
        self.mails: list[int] = []

    def is_paid(self, order: int) -> bool:
        return order in self.paid

    def send_reminder(self, order: int) -> None:
        self.mails.append(order)


@pytest.fixture
def shop(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """The application behind the route /orders/{order}/remind, which calls the receiver of the page."""
    shop = Shop()
    monkeypatch.setitem(sys.modules, "shop", shop)
    receiver = stage.load("remind-unless-paid", "receiver.py", monkeypatch)
    stage.receiver.respond = lambda call: int(receiver.remind(int(call.path.split("/")[2])))
    return shop


@pytest.fixture
def reminders(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The sender of the page, with half a second in place of two hours."""
    reminders = stage.load("remind-unless-paid", "reminders.py", monkeypatch)
    monkeypatch.setattr(reminders, "DELAY", "500ms")
    return reminders


def test_unpaid_order_is_reminded_once(stage: Stage, shop: Shop, reminders: ModuleType) -> None:
    job = reminders.order_placed(1)

    ended = stage.ended(job["id"])
    assert (ended["state"], shop.mails) == ("succeeded", [1])


def test_paid_order_is_not_called(stage: Stage, shop: Shop, reminders: ModuleType) -> None:
    job = reminders.order_placed(2)

    reminders.order_paid(2)

    ended = stage.ended(job["id"])
    assert (ended["state"], ended["error"]["message"]) == ("cancelled", "order 2 was paid")
    assert stage.receiver.calls == []


def test_order_placed_twice_makes_one_reminder(stage: Stage, shop: Shop, reminders: ModuleType) -> None:
    first = reminders.order_placed(3)
    second = reminders.order_placed(3)

    stage.ended(first["id"])
    assert second["id"] == first["id"]
    assert shop.mails == [3]


def test_order_whose_cancel_was_lost_is_not_reminded(stage: Stage, shop: Shop, reminders: ModuleType) -> None:
    job = reminders.order_placed(4)
    shop.paid.add(4)

    assert stage.ended(job["id"])["state"] == "succeeded"
    assert (len(stage.receiver.calls), shop.mails) == (1, [])


def test_payment_after_the_reminder_is_no_error(stage: Stage, shop: Shop, reminders: ModuleType) -> None:
    stage.ended(reminders.order_placed(5)["id"])

    reminders.order_paid(5)

    assert shop.mails == [5]


def test_payment_while_the_reminder_is_sent_is_no_error(stage: Stage, reminders: ModuleType) -> None:
    is_paid = threading.Event()
    stage.receiver.respond = lambda call: 204 if is_paid.wait(recipes_stage.PATIENCE) else 500
    job = reminders.order_placed(6)
    stage.until(job["id"], state="running")

    reminders.order_paid(6)
    is_paid.set()

    assert stage.ended(job["id"])["state"] == "cancelled"
    assert len(stage.receiver.calls) == 1


def test_retries_of_a_reminder_last_until_it_expires(stage: Stage, reminders: ModuleType) -> None:
    policy = stage.job(reminders.order_placed(7)["id"])["retry"]
    reminders.order_paid(7)
    waits = [wait(RetryPolicy(**policy), failures, 0.0) for failures in range(1, policy["max_attempts"])]

    assert sum(waits) >= 3600  # even with the shortest waits that the jitter allows


# retry for a day


@pytest.fixture
def webhooks(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The sender of the page, with seconds in place of a day and tenths in place of minutes."""
    webhooks = stage.load("retry-for-a-day", "webhooks.py", monkeypatch)
    monkeypatch.setattr(webhooks, "RETRY", webhooks.RETRY | {"delay": "100ms", "max_delay": "400ms"})
    monkeypatch.setattr(webhooks, "STOP_AFTER", "1500ms")
    return webhooks


def fail_times(times: int, status: int = 500) -> Callable[[Call], int]:
    """Return a receiver that responds with an error that often."""
    left = [status] * times
    return lambda call: left.pop() if left else 204


def test_delivery_is_retried_until_the_receiver_recovers(stage: Stage, webhooks: ModuleType) -> None:
    stage.receiver.respond = fail_times(3)

    job = webhooks.deliver(f"{stage.receiver.url}/hook", {"id": "evt-1", "total": 7})

    ended = stage.ended(job["id"])
    assert (ended["state"], ended["attempt"]) == ("succeeded", 4)
    assert {call.headers["webhook-id"] for call in stage.receiver.calls} == {job["id"]}
    assert [call.json for call in stage.receiver.calls] == [{"id": "evt-1", "total": 7}] * 4


def test_delivery_expires_at_the_end_of_the_day_and_is_listed(stage: Stage, webhooks: ModuleType) -> None:
    stage.receiver.respond = fail_times(1000)
    job = webhooks.deliver(f"{stage.receiver.url}/hook", {"id": "evt-2"})

    ended = stage.ended(job["id"])

    assert ended["state"] == "expired"
    assert re.match(r"[3-9] attempts were made.*500", ended["error"]["message"])
    assert job["id"] in [undelivered["id"] for undelivered in webhooks.undelivered()]


def test_expired_delivery_is_delivered_again(
    stage: Stage, webhooks: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "STOP_AFTER", "100ms")
    stage.receiver.respond = fail_times(1000)
    job = webhooks.deliver(f"{stage.receiver.url}/hook", {"id": "evt-3"})
    assert stage.ended(job["id"])["state"] == "expired"
    stage.receiver.respond = fail_times(1)

    again = webhooks.deliver_again(job)

    assert again["expires_at"] is None
    ended = stage.ended(job["id"])
    assert (ended["state"], ended["attempt"]) == ("succeeded", 2)


def test_receiver_that_responds_410_ends_the_delivery(stage: Stage, webhooks: ModuleType) -> None:
    stage.receiver.respond = lambda call: 410

    job = webhooks.deliver(f"{stage.receiver.url}/hook", {"id": "evt-4"})

    assert stage.ended(job["id"])["state"] == "failed"
    assert len(stage.receiver.calls) == 1


def test_event_delivered_twice_makes_one_job(stage: Stage, webhooks: ModuleType) -> None:
    first = webhooks.deliver(f"{stage.receiver.url}/hook", {"id": "evt-5"})
    second = webhooks.deliver(f"{stage.receiver.url}/hook", {"id": "evt-5"})

    stage.ended(first["id"])
    assert second["id"] == first["id"]
    assert len(stage.receiver.calls) == 1


def test_delivery_goes_on_after_a_crash(tmp_path: Path, webhooks: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    with recipes_stage.running(tmp_path) as stage:
        monkeypatch.setattr(webhooks, "ERELONG", stage.service.url)
        monkeypatch.setattr(webhooks, "STOP_AFTER", "1m")
        stage.receiver.respond = fail_times(1)
        job = webhooks.deliver(f"{stage.receiver.url}/hook", {"id": "evt-6"})
        stage.until(job["id"], state="scheduled", attempt=1)

        stage.service.kill()
        stage.service.start()

        assert stage.ended(job["id"])["state"] == "succeeded"


def test_number_of_attempts_in_a_day_is_as_written(webhooks: ModuleType) -> None:
    assert (webhooks.RETRY["max_attempts"], webhooks.RETRY["factor"]) == (30, 2)
    policy = RetryPolicy(max_attempts=30, delay=60.0, factor=2.0, max_delay=3600.0, jitter=0.2)
    starts = [0.0]
    for failures in range(1, policy.max_attempts):
        starts.append(starts[-1] + wait(policy, failures, 0.5) / 60)

    assert starts[:9] == [0, 1, 3, 7, 15, 31, 63, 123, 183]
    assert sum(start <= 24 * 60 for start in starts) == 29


# debounce


@pytest.fixture
def indexing(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The sender of the page, with half a second in place of 30 s."""
    indexing = stage.load("debounce", "indexing.py", monkeypatch)
    monkeypatch.setattr(indexing, "QUIET", "500ms")
    return indexing


def test_burst_of_events_makes_one_run_with_the_last_data(stage: Stage, indexing: ModuleType) -> None:
    jobs = [indexing.document_changed(1, revision) for revision in range(5)]

    ended = stage.ended(jobs[0]["id"])

    assert ended["state"] == "succeeded"
    assert {job["id"] for job in jobs} == {ended["id"]}
    assert [job["id"] for job in stage.jobs("queue=indexing&label.document=1")] == [ended["id"]]
    assert [call.json for call in stage.receiver.calls] == [{"document": 1, "revision": 4}]


def test_event_during_a_run_makes_a_second_run_after_the_first(stage: Stage, indexing: ModuleType) -> None:
    may_end = threading.Event()
    stage.receiver.respond = lambda call: 204 if may_end.wait(recipes_stage.PATIENCE) else 500
    first = indexing.document_changed(2, 1)
    stage.until(first["id"], state="running")

    second = indexing.document_changed(2, 2)

    stage.until(second["id"], waiting_for="label")
    superseded = stage.job(first["id"])
    assert (superseded["state"], superseded["key"], second["key"]) == ("running", None, "document-2")
    may_end.set()
    assert stage.ended(second["id"])["state"] == "succeeded"
    assert stage.job(first["id"])["state"] == "succeeded"
    assert [call.json["revision"] for call in stage.receiver.calls] == [1, 2]


def test_superseded_run_is_not_retried(stage: Stage, indexing: ModuleType) -> None:
    may_end = threading.Event()
    stage.receiver.respond = lambda call: (
        500 if may_end.wait(recipes_stage.PATIENCE) and call.json["revision"] == 1 else 204
    )
    first = indexing.document_changed(3, 1)
    stage.until(first["id"], state="running")
    second = indexing.document_changed(3, 2)
    may_end.set()

    assert stage.ended(first["id"])["state"] == "failed"
    assert stage.ended(second["id"])["state"] == "succeeded"
    assert [call.json["revision"] for call in stage.receiver.calls] == [1, 2]


@pytest.mark.parametrize(
    ("rule", "waiting", "running"),
    [
        ("replace", {"status": 200, "params": {"n": 2}, "is_moved": True}, {"status": 201}),
        ("reschedule", {"status": 200, "params": {"sleep": 60}, "is_moved": True}, {"status": 201}),
        ("keep", {"status": 200, "params": {"sleep": 60}, "is_moved": False}, {"status": 200}),
    ],
)
def test_rule_does_as_the_table_says(stage: Stage, rule: str, waiting: dict[str, Any], running: dict[str, Any]) -> None:
    job = {"kind": "echo", "key": f"rule-{rule}", "on_conflict": rule}
    _, first = stage.ask("POST", "/v1/jobs", job | {"params": {"sleep": 60}, "delay": 60})

    status, changed = stage.ask("POST", "/v1/jobs", job | {"params": {"n": 2}, "delay": 90})
    is_moved = changed["due_at"] > first["due_at"]
    assert {"status": status, "params": changed["params"], "is_moved": is_moved} == waiting

    stage.ask("PATCH", f"/v1/jobs/{first['id']}", {"params": {"sleep": 60}})
    stage.ask("POST", f"/v1/jobs/{first['id']}/run")
    stage.until(first["id"], state="running")
    status, other = stage.ask("POST", "/v1/jobs", job | {"params": {"n": 3}, "delay": 90})
    stage.ask("POST", f"/v1/jobs/{first['id']}/cancel")
    assert {"status": status} == running
    assert (other["id"] == first["id"]) == (status == 200)
