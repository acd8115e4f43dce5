"""The command that shows the service in the terminal, as it is now."""

from __future__ import annotations

import threading
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from erelong.cli.console.output import has_colours, width_of_terminal
from erelong.cli.console.running import UNAVAILABLE, client_of
from erelong.cli.live.frame import ORDERS, Snapshot, View, frame, row_of, styled
from erelong.client.errors import ErelongError, Forbidden, Invalid, NotFound, Unauthenticated
from erelong.client.requests import get

if TYPE_CHECKING:
    import argparse

    from erelong.cli.console.session import Session
    from erelong.cli.live.terminal import Terminal

EVERY: Final = 1.0  # seconds between two readings
PATIENCE: Final = 5.0  # seconds for an answer
SELDOM: Final = 5  # readings, of which one has what changes slowly
BINS: Final = 120
FAILURES: Final = 5
PAGE: Final = 100
HEIGHT: Final = 40  # lines, where there is no screen
MALFORMED: Final = (AttributeError, LookupError, TypeError, ValueError)  # what reading an unknown answer raises


def add(_: str, parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--once", action="store_true", help="print it once, as without a terminal")
    parser.set_defaults(call=top)


def top(options: argparse.Namespace) -> int:
    options.request_timeout = min(options.request_timeout, PATIENCE)
    with client_of(options, has_screen=True) as client:
        try:
            return _show(client, View(url=client.url, is_utc=options.utc), is_once=options.once)
        except MALFORMED as error:
            raise ErelongError(
                f"cannot read the response of {client.url}: {error!r}; "
                "check that the URL is that of an erelong service of this version"
            ) from error


def _show(client: Session, view: View, *, is_once: bool) -> int:
    from erelong.cli.live.terminal import Terminal, is_usable

    if is_once or not is_usable():
        return _print_once(client, view)
    reader = Reader(client=client, view=view)
    with Terminal() as terminal:
        reader.start(terminal)
        try:
            Screen(terminal=terminal, client=client, reader=reader, view=view).run()
        finally:
            reader.stop()
    return 0


def _print_once(client: Session, view: View) -> int:
    found = read(client, view, Snapshot(), is_whole=True)
    lines = frame(found, view, width_of_terminal(), HEIGHT)[:-1]
    while lines and not lines[-1].text:
        lines.pop()
    print("\n".join(styled(lines, has_colours=has_colours())))
    return UNAVAILABLE if found.stats is None else 0


# reading


def read(client: Session, view: View, before: Snapshot, *, is_whole: bool) -> Snapshot:
    """Read the service again. Keep its earlier answers if it does not respond."""
    try:
        found = before._replace(stats=client.stats(), queues=_queues(client, view.order), error="", since=None)
        if view.opened:
            page = client.send(get("/v1/jobs", {"queue": view.opened, "order": "due_at", "limit": PAGE}))
            found = found._replace(jobs=page["jobs"])
        if is_whole:
            failed = {"state": "failed", "order": "finished_at", "limit": FAILURES}
            found = found._replace(due=_due(client), failures=_read(client, "/v1/jobs", failed).get("jobs", ()))
    except ErelongError as error:
        if isinstance(error, Unauthenticated | Forbidden) and before.stats is None:
            raise  # it will not pass
        return before._replace(error=str(error), since=before.since or datetime.now())
    return found


def _queues(client: Session, order: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = _read(client, "/v1/queues", {"order": order, "limit": PAGE}).get("queues", [])
    return found


def _due(client: Session) -> dict[str, Any] | None:
    return _read(client, "/v1/due", {"step": "60s", "bins": BINS}) or None


def _read(client: Session, path: str, query: dict[str, Any]) -> dict[str, Any]:
    """Return an answer; of a service that is too old for the question, an empty one."""
    try:
        answer: dict[str, Any] = client.send(get(path, query))
    except (NotFound, Invalid):
        return {}
    return answer


class Reader:
    """A thread that reads the service every second, so that no slow answer delays a key."""

    def __init__(self, *, client: Session, view: View) -> None:
        self._client = client
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.view = view
        self.number = 0  # of the reading that began last
        self.found = Snapshot()
        self.failure: Exception | None = None

    def start(self, terminal: Terminal) -> None:
        self._thread = threading.Thread(target=self._run, args=(terminal,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Begin no other reading. One that is under way may outlive the screen, and ends with the process."""
        self._stop.set()
        self._wake.set()

    def hurry(self) -> None:
        """Read at once."""
        self._wake.set()

    def _run(self, terminal: Terminal) -> None:
        while not self._stop.is_set():
            self._wake.clear()
            self.number += 1
            try:
                found = read(self._client, self.view, self.found, is_whole=self.number % SELDOM == 1)
                self.found = found._replace(number=self.number)
            except Exception as error:  # noqa: BLE001 - raised again by Screen.run; otherwise the screen would freeze
                self.failure = error
            if self._stop.is_set():
                return
            terminal.wake()
            self._wake.wait(EVERY)


class Screen:
    """Draws what the reader has found, and does what the keys say."""

    def __init__(self, *, terminal: Terminal, client: Session, reader: Reader, view: View) -> None:
        self._terminal = terminal
        self._client = client
        self._reader = reader
        self._view = view
        self._asked = ""  # the queue that somebody is asked about
        self._toggled: dict[str, tuple[bool, int]] = {}  # paused or not, and the readings that may not know it yet

    def run(self) -> None:
        key = ""
        while key != "q":
            if self._reader.failure is not None:
                raise self._reader.failure
            found = self._known()
            if found.queues and not self._view.selected:
                self._view = self._view._replace(selected=found.queues[0]["name"])
            width, height = self._terminal.size
            self._terminal.draw(styled(frame(found, self._view, width, height), has_colours=has_colours()))
            key = self._terminal.key(EVERY)
            if key:
                self._pressed(key, found)

    def _known(self) -> Snapshot:
        """Return the last reading, with the pauses that this screen has changed since it began."""
        found = self._reader.found
        self._toggled = {name: new for name, new in self._toggled.items() if new[1] >= found.number}
        paused = {name: is_paused for name, (is_paused, _) in self._toggled.items()}
        queues = [{**queue, "paused": paused.get(queue["name"], queue["paused"])} for queue in found.queues]
        return found._replace(queues=queues)

    def _pressed(self, key: str, found: Snapshot) -> None:
        view = self._view._replace(message="")
        asked, self._asked = self._asked, ""
        name = view.opened or view.selected
        match key:
            case "up" | "down":
                view = view._replace(selected=_neighbour(found, view, 1 if key == "down" else -1))
            case "s":
                view = view._replace(order=ORDERS[(ORDERS.index(view.order) + 1) % len(ORDERS)])
            case "enter" if name:
                view = view._replace(opened=None if view.opened else name)
            case "escape":
                view = view._replace(opened=None)
            case "p" if name and self._client.must_confirm:
                self._asked = name
                verb = "Resume" if _is_paused(found, name) else "Pause"
                view = view._replace(message=f"{verb} {name} at {self._client.url}? Press y to confirm.")
            case "p" if name:
                view = view._replace(message=self._toggle(found, name))
            case "y" if asked:
                self._client.must_confirm = False
                view = view._replace(message=self._toggle(found, asked))
            case _:
                pass
        has_moved = (view.order, view.opened) != (self._view.order, self._view.opened)
        self._view = self._reader.view = view
        if has_moved or view.message:
            self._reader.hurry()

    def _toggle(self, found: Snapshot, name: str) -> str:
        """Pause or resume a queue; return what to say about it."""
        queue, is_paused = self._client.queue(name), _is_paused(found, name)
        try:
            queue.resume() if is_paused else queue.pause("by erelong top")
        except ErelongError as error:
            return str(error)
        self._toggled[name] = (not is_paused, self._reader.number)
        return f"{name} {'resumed' if is_paused else 'paused'}"


def _neighbour(found: Snapshot, view: View, step: int) -> str:
    """Return the queue above or below the selected one."""
    if not found.queues:
        return view.selected
    row = row_of(found, view) + step
    name: str = found.queues[max(min(row, len(found.queues) - 1), 0)]["name"]
    return name


def _is_paused(found: Snapshot, name: str) -> bool:
    return any(queue["paused"] for queue in found.queues if queue["name"] == name)
