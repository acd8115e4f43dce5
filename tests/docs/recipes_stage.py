"""Where recipes run: a real service with the settings of the pages, a receiver of its webhooks, and files to import."""

from __future__ import annotations

import importlib.util
import json
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from standardwebhooks import Webhook

from tests.docs import recipes_pages
from tests.docs.recipes_console import Console
from tests.docs.recipes_receiver import Receiver
from tests.support.process import ServiceProcess

SIGNING_SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLjSw"
SETTINGS = {"webhooks.allow_networks": '["127.0.0.0/8"]', "webhooks.signing_secrets": f'["{SIGNING_SECRET}"]'}
PATIENCE = 8.0


class Stage:
    """A service and a receiver; `folder` holds the files of the pages."""

    def __init__(self, *, service: ServiceProcess, receiver: Receiver, folder: Path) -> None:
        self.service = service
        self.receiver = receiver
        self.folder = folder

    @property
    def environment(self) -> dict[str, str]:
        """The variables that the pages read their addresses from."""
        return {
            "ERELONG_URL": self.service.url,
            "APP_URL": self.receiver.url,
            "PUBLIC_URL": self.receiver.url,
            "ERELONG_SIGNING_SECRET": SIGNING_SECRET,
        }

    @contextmanager
    def console(self, **more: str) -> Iterator[Console]:
        """Open a terminal in the folder, for the addresses that the pages show."""
        replaced = {
            "localhost:8080": self.service.url.removeprefix("http://"),
            "https://app.example": self.receiver.url,
        }
        console = Console(folder=self.folder, replaced=replaced, environment=self.environment | more)
        try:
            yield console
        finally:
            console.close()

    def load(self, page: str, file: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
        """Write the files of a page and import one, with the addresses of this stage."""
        recipes_pages.read(page).write(self.folder)
        for name, value in self.environment.items():
            monkeypatch.setenv(name, value)
        return load(self.folder / file)

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Send one request; return the status and the JSON of the response."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.service.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as response:
                text = response.read()
                return response.status, json.loads(text) if text else None
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())

    def job(self, id: str) -> dict[str, Any]:
        status, job = self.ask("GET", f"/v1/jobs/{id}")
        assert status == 200, job
        return dict(job)

    def jobs(self, query: str) -> list[dict[str, Any]]:
        status, page = self.ask("GET", f"/v1/jobs?view=full&{query}")
        assert status == 200, page
        return list(page["jobs"])

    def ended(self, id: str) -> dict[str, Any]:
        """Wait until a job is final; return it."""
        status, job = self.ask("GET", f"/v1/jobs/{id}?wait={PATIENCE - 1:g}")
        assert status == 200, job
        assert job["finished_at"], job
        return dict(job)

    def until(self, id: str, **members: Any) -> dict[str, Any]:
        """Wait until the members of a job have these values; return it."""
        for _ in looks():
            job = self.job(id)
            if all(job[name] == value for name, value in members.items()):
                return job
        raise AssertionError("not reached")


@contextmanager
def running(folder: Path, *, config: str = "", port: int = 0) -> Iterator[Stage]:
    """Run a service and a receiver on a folder; `config` comes on top of the settings of all pages."""
    (folder / "service").mkdir()
    (folder / "pages").mkdir()
    pages = [recipes_pages.read(name).settings for name in recipes_pages.names()]
    config = "\n".join([*pages, config])
    service = ServiceProcess(folder=folder / "service", config=config, settings=SETTINGS, port=port)
    try:
        with Receiver() as receiver:
            service.start()
            yield Stage(service=service, receiver=receiver, folder=folder / "pages")
    finally:
        service.kill()


def post_unsigned(url: str) -> int:
    """Send a webhook as a stranger would; return the status."""
    headers = {"webhook-id": "1", "webhook-timestamp": str(int(time.time())), "webhook-signature": "v1,c3RyYW5nZXI="}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, b"{}", headers), timeout=PATIENCE) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def sign(id: str, body: bytes) -> dict[str, str]:
    """Return the headers of a webhook as erelong sends it."""
    now = datetime.now(UTC)
    signature = Webhook(SIGNING_SECRET).sign(id, now, body.decode())
    return {"webhook-id": id, "webhook-timestamp": str(int(now.timestamp())), "webhook-signature": signature}


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text)


def load(path: Path) -> ModuleType:
    """Import a file as a module of its own; files beside it can be imported by it."""
    spec = importlib.util.spec_from_file_location(f"recipe_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    finally:
        with suppress(ValueError):
            sys.path.remove(str(path.parent))
    return module


def looks(timeout: float = PATIENCE) -> Iterator[None]:
    """Turns of a loop that waits for something outside; raise TimeoutError when the time is up."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        yield
        time.sleep(0.01)
    raise TimeoutError(f"nothing happened within {timeout:g} s")
