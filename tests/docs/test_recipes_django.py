"""The Django recipe in a Django of this process: its database is in memory, its webhooks arrive over HTTP."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import django
import pytest
from django.conf import settings
from django.core import mail
from django.core.management import call_command
from django.db import connection, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.test import override_settings
from django.utils import timezone

from tests.docs import recipes_pages, recipes_stage
from tests.docs.recipes_console import split
from tests.docs.recipes_stage import SIGNING_SECRET, Stage

URLS = """from django.urls import path
from orders.views import remind
urlpatterns = [path("orders/<int:pk>/remind", remind)]
"""
NOBODY = "http://127.0.0.1:9"  # an address where no service listens


class QuietHandler(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def running_stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with recipes_stage.running(tmp_path_factory.mktemp("django")) as stage:
        yield stage


@pytest.fixture(scope="module")
def project(running_stage: Stage) -> Iterator[SimpleNamespace]:
    """The project of the page with its database and a server; `url` is where it listens."""
    folder = running_stage.folder
    recipes_pages.read("django").write(folder)
    (folder / "urls.py").write_text(URLS)
    sys.path.insert(0, str(folder))
    server = WSGIServer(("127.0.0.1", 0), QuietHandler)
    url = f"http://127.0.0.1:{server.server_port}"
    _configure(running_stage, url)
    from django.core.wsgi import get_wsgi_application

    server.set_app(get_wsgi_application())
    call_command("migrate", run_syncdb=True, verbosity=0)
    thread = threading.Thread(target=_serve, args=(server,))
    thread.start()
    from orders import models, reminders  # type: ignore[import-not-found]

    yield SimpleNamespace(url=url, Order=models.Order, reminders=reminders)
    server.shutdown()
    thread.join()
    server.server_close()
    _disconnect()
    sys.path.remove(str(folder))


def _serve(server: WSGIServer) -> None:
    server.serve_forever(poll_interval=0.02)
    _disconnect()


def _disconnect() -> None:
    """Close the connection of this thread; the one of SQLite stays open while the database is in memory."""
    BaseDatabaseWrapper.close(connection)


def _configure(stage: Stage, url: str) -> None:
    """Apply the settings of the page, and those that every project has."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (stage.environment | {"PUBLIC_URL": url}).items():
            patch.setenv(name, value)
        page = recipes_stage.load(stage.folder / "settings.py")
    shown = {name: value for name, value in vars(page).items() if name.isupper()}
    memory = {"ENGINE": "django.db.backends.sqlite3", "NAME": "file:recipe?mode=memory&cache=shared"}
    settings.configure(
        **shown,
        DATABASES={"default": memory},
        INSTALLED_APPS=["orders"],
        ROOT_URLCONF="urls",
        ALLOWED_HOSTS=["127.0.0.1"],
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        EMAIL_BACKEND="django.core.mail.backends.locmem.EmailBackend",
        USE_TZ=True,
        LOGGING_CONFIG=None,
    )
    django.setup()
    mail.outbox = []


@pytest.fixture
def stage(running_stage: Stage, project: SimpleNamespace) -> Stage:
    mail.outbox.clear()
    return running_stage


def jobs_of(stage: Stage, order: Any) -> list[dict[str, Any]]:
    return stage.jobs(f"label.order={order.pk}")


def run_now(stage: Stage, order: Any) -> dict[str, Any]:
    """Make the job of an order due; return it when it has ended."""
    (job,) = jobs_of(stage, order)
    stage.ask("POST", f"/v1/jobs/{job['id']}/run")
    return stage.ended(job["id"])


def test_committed_order_has_a_job_at_its_time(stage: Stage, project: SimpleNamespace) -> None:
    order = project.reminders.place_order("ann@shop.example")

    (job,) = jobs_of(stage, order)
    order.refresh_from_db()
    assert order.reminder_job == job["id"]
    late = recipes_stage.instant(job["execute_at"]) - (order.created_at + timedelta(hours=2))
    assert timedelta(0) <= late < timedelta(milliseconds=1)


def test_rolled_back_order_has_no_job(stage: Stage, project: SimpleNamespace) -> None:
    before = len(stage.jobs("limit=1000"))

    with transaction.atomic():
        order = project.reminders.place_order("bob@shop.example")
        transaction.set_rollback(True)

    assert not project.Order.objects.filter(pk=order.pk).exists()
    assert len(stage.jobs("limit=1000")) == before


def test_unpaid_order_gets_one_mail(stage: Stage, project: SimpleNamespace) -> None:
    order = project.reminders.place_order("cid@shop.example")

    assert run_now(stage, order)["state"] == "succeeded"

    assert [message.to for message in mail.outbox] == [["cid@shop.example"]]
    job = jobs_of(stage, order)[0]
    stage.ask("POST", "/v1/jobs", {"kind": "http", "params": job["params"], "labels": {"copy": str(order.pk)}})
    (copy,) = stage.jobs(f"label.copy={order.pk}")
    assert stage.ended(copy["id"])["state"] == "succeeded"
    assert len(mail.outbox) == 1


def test_paid_order_gets_no_mail(stage: Stage, project: SimpleNamespace) -> None:
    order = project.reminders.place_order("dan@shop.example")
    project.Order.objects.filter(pk=order.pk).update(is_paid=True)

    assert run_now(stage, order)["state"] == "succeeded"

    assert mail.outbox == []


def test_mail_that_fails_is_retried(stage: Stage, project: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    order = project.reminders.place_order("eve@shop.example")
    (job,) = jobs_of(stage, order)
    stage.ask("PATCH", f"/v1/jobs/{job['id']}", {"retry": {"delay": 0.2}})
    failures = [ConnectionError("no mail server")]
    views = sys.modules["orders.views"]
    send_mail = views.send_mail

    def send(*arguments: Any) -> None:
        if failures:
            raise failures.pop()
        send_mail(*arguments)

    monkeypatch.setattr(views, "send_mail", send)
    ended = run_now(stage, order)

    assert [attempt["outcome"] for attempt in ended["attempts"]] == ["error", "succeeded"]
    assert len(mail.outbox) == 1


def test_order_placed_while_erelong_is_down_is_saved_and_submitted_later(
    stage: Stage, project: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    with override_settings(ERELONG_URL=NOBODY), caplog.at_level(logging.ERROR):
        order = project.reminders.place_order("fay@shop.example")
    assert "submit_reminder" in caplog.text
    assert jobs_of(stage, order) == []

    (console,) = recipes_pages.read("django").consoles
    for line in split(console):
        python, manage, *command = line.command.split()
        assert (python, manage) == ("python", "manage.py")
        call_command(*command)  # in this process, where the database is

    order.refresh_from_db()
    assert [job["id"] for job in jobs_of(stage, order)] == [order.reminder_job]


def test_submit_whose_response_was_lost_is_repeated_and_makes_one_job(stage: Stage, project: SimpleNamespace) -> None:
    order = project.reminders.place_order("gil@shop.example")
    project.Order.objects.filter(pk=order.pk).update(reminder_job="")

    call_command("submit_reminders")

    order.refresh_from_db()
    assert [job["id"] for job in jobs_of(stage, order)] == [order.reminder_job]


def test_command_leaves_orders_that_are_too_old(stage: Stage, project: SimpleNamespace) -> None:
    order = project.Order.objects.create(email="hal@shop.example", created_at=timezone.now() - timedelta(hours=24))

    call_command("submit_reminders")

    assert jobs_of(stage, order) == []


def test_order_found_after_its_due_time_is_reminded_at_once(stage: Stage, project: SimpleNamespace) -> None:
    order = project.Order.objects.create(email="ian@shop.example", created_at=timezone.now() - timedelta(hours=5))

    call_command("submit_reminders")

    (job,) = jobs_of(stage, order)
    assert stage.ended(job["id"])["state"] == "succeeded"
    assert len(mail.outbox) == 1


def test_call_that_erelong_did_not_sign_is_refused(project: SimpleNamespace, stage: Stage) -> None:
    order = project.reminders.place_order("joe@shop.example")

    assert recipes_stage.post_unsigned(f"{project.url}/orders/{order.pk}/remind") == 401

    assert mail.outbox == []
    assert SIGNING_SECRET == settings.ERELONG_SIGNING_SECRET
