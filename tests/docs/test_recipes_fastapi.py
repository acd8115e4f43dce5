"""The FastAPI recipe as its console lines start it: a real FastAPI behind uvicorn, called by clients and by erelong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.docs import recipes_pages, recipes_stage
from tests.docs.recipes_console import Console, free_port
from tests.docs.recipes_stage import Stage, looks

TEXT = {"user": 7, "text": "Your trial ends tomorrow.", "delay": "1h"}


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A service that keeps its port when it is started again, and the files of the page."""
    with recipes_stage.running(tmp_path_factory.mktemp("fastapi"), port=free_port()) as stage:
        recipes_pages.read("fastapi").write(stage.folder)
        yield stage


@pytest.fixture(scope="module")
def console(stage: Stage) -> Iterator[Console]:
    """A terminal in which the application runs; erelong can reach it as `PUBLIC_URL`."""
    port = free_port()
    with stage.console(PUBLIC_URL=f"http://127.0.0.1:{port}") as console:
        console.replace("localhost:8000", f"127.0.0.1:{port}")
        for block in recipes_pages.read("fastapi").consoles:
            console.run(block)
        yield console


@pytest.fixture(scope="module")
def application(console: Console) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=console.address("localhost:8000"), timeout=recipes_stage.PATIENCE) as client:
        yield client


def create(application: httpx.Client, key: str, **fields: Any) -> httpx.Response:
    return application.post("/reminders", json=TEXT | fields, headers={"Idempotency-Key": key})


def run_now(stage: Stage, id: str) -> dict[str, Any]:
    stage.ask("POST", f"/v1/jobs/{id}/run")
    return stage.ended(id)


def test_reminder_is_created_read_and_cancelled(stage: Stage, application: httpx.Client) -> None:
    created = create(application, "read")
    id = created.json()["id"]

    assert created.status_code == 201
    assert application.get(f"/reminders/{id}").json() == created.json() | {"state": "scheduled"}
    assert application.delete(f"/reminders/{id}").status_code == 204
    assert application.get(f"/reminders/{id}").json()["state"] == "cancelled"
    assert stage.job(id)["attempts"] == []


def test_request_that_is_repeated_makes_one_reminder(application: httpx.Client) -> None:
    first, second = create(application, "twice"), create(application, "twice")
    other = create(application, "twice", text="Something else.")

    assert first.json() == second.json()
    assert other.status_code == 409


def test_due_reminder_is_sent_once_even_if_the_webhook_arrives_twice(
    stage: Stage, console: Console, application: httpx.Client
) -> None:
    id = create(application, "due", text="It is due.").json()["id"]

    assert run_now(stage, id)["state"] == "succeeded"
    assert send_again(application, id) == 204

    assert console.output.count("to user 7: It is due.") == 1


def send_again(application: httpx.Client, id: str) -> int:
    """Send the webhook of a job again, signed, as erelong does after a lost response."""
    body = b'{"user":7,"text":"It is due."}'
    return application.post("/webhooks/reminder", content=body, headers=recipes_stage.sign(id, body)).status_code


def test_delay_that_is_no_duration_is_refused_with_the_reason(application: httpx.Client) -> None:
    refused = create(application, "bad", delay="soon")

    assert refused.status_code == 422
    assert "soon" in refused.json()["detail"]


def test_unknown_reminder_is_404(application: httpx.Client) -> None:
    assert application.get("/reminders/none").status_code == 404


def test_call_that_erelong_did_not_sign_is_refused(console: Console, application: httpx.Client) -> None:
    assert recipes_stage.post_unsigned(f"{application.base_url}/webhooks/reminder") == 401


def test_reminder_survives_a_restart_of_erelong(stage: Stage, console: Console, application: httpx.Client) -> None:
    id = create(application, "restart", text="After the restart.").json()["id"]

    stage.service.kill()
    down = create(application, "down")
    stage.service.start()

    assert (down.status_code, down.headers["Retry-After"]) == (503, "5")
    assert run_now(stage, id)["state"] == "succeeded"
    for _ in looks():
        if "to user 7: After the restart." in console.output:
            break
    assert create(application, "down").status_code == 201
