"""`erelong top` on a terminal: what its keys do, and that the terminal is left as it was found."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from erelong import Client
from tests.cli.conftest import Erelong, Terminal, environment
from tests.support.process import ServiceProcess
from tests.support.terminal import OnTerminal

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(scope="module")
def service_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a service whose screen shows nothing of other tests."""
    service = ServiceProcess(folder=tmp_path_factory.mktemp("top"), config='[store]\nkind = "memory"\n')
    service.start()
    yield service.url
    service.kill()


def go_up_to(screen: OnTerminal, queue: str) -> None:
    """Select the first queue by name, once the screen has them in this order."""
    while f"> {queue[:16]}" not in screen.screen:
        screen.press("k")
        screen.wait_for_frame()


def test_overview_is_drawn_again_and_again(terminal: Terminal, client: Client, queue: str) -> None:
    client.queue(queue).pause()
    client.submit("echo", queue=queue)
    screen = terminal("top")
    screen.wait_for(lambda shown: queue in shown and "Last failures" in shown)

    for _ in range(4):
        client.submit("echo", queue=queue)
    screen.wait_for(f"queue {queue} is paused with 5 due jobs")
    screen.press("q")
    client.queue(queue).purge()

    assert screen.wait() == 0
    assert screen.is_restored
    assert "\x1b[?1049h" in screen.text


def test_keys_pause_sort_and_show_jobs(terminal: Terminal, client: Client, queue: str) -> None:
    held = f"001-{queue}"
    client.submit("echo", queue=held, delay="1h", key="order-7")
    screen = terminal("top")
    screen.wait_for("sort: due")
    screen.press("sss")  # to the order by name, in which the queue is first
    screen.wait_for("sort: name")
    go_up_to(screen, held)

    screen.press("p")
    screen.wait_for(f"{held} paused")
    assert client.queue(held).get().paused
    screen.press("p")
    screen.wait_for(f"{held} resumed")
    assert not client.queue(held).get().paused
    screen.press("\r")
    screen.wait_for(lambda shown: f"Waiting jobs of {held}" in shown and "order-7" in shown)
    screen.press("\x1b")
    screen.wait_for("Last failures")
    screen.press("j")
    screen.wait_for(f"\n  {held[:16]}")
    screen.press("\x1b[A")
    screen.wait_for(f"\n> {held[:16]}")
    screen.press("q")

    assert screen.wait() == 0


def test_size_follows_the_terminal(terminal: Terminal) -> None:
    screen = terminal("top", size=(100, 40))
    screen.wait_for("Last failures")

    screen.resize(40, 10)
    screen.wait_for(lambda shown: len(shown.splitlines()) == 10 and max(map(len, shown.splitlines())) <= 40)
    screen.resize(120, 30)
    screen.wait_for(lambda shown: len(shown.splitlines()) == 30)
    screen.press("q")

    assert screen.wait() == 0


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)], ids=["INT", "TERM", "HUP"]
)
def test_terminal_is_restored_after_a_signal(terminal: Terminal, number: signal.Signals, code: int) -> None:
    screen = terminal("top")
    screen.wait_for("sort: due")

    screen.signal(number)

    assert screen.wait() == code
    assert screen.is_restored
    assert "Traceback" not in screen.text


def test_suspended_screen_gives_the_terminal_back_and_returns(service_url: str, tmp_path: Path) -> None:
    line = f"set -m; {sys.executable} -m erelong top; echo suspended; read line; fg"  # a shell has to stop it
    variables = environment(service_url, tmp_path)
    with OnTerminal(["bash", "--norc", "-c", line], folder=tmp_path, environment=variables) as screen:
        screen.wait_for("sort: due")

        screen.press("\x1a")
        screen.wait_for("suspended")
        assert screen.is_restored
        screen.press("\n")
        screen.wait_for(lambda shown: not screen.is_restored and "sort: due" in shown)
        screen.press("q")

        assert screen.wait() == 0
        assert screen.is_restored


def test_terminal_is_restored_when_the_key_is_refused(terminal: Terminal, tmp_path: Path) -> None:
    service = ServiceProcess(folder=tmp_path, config='[store]\nkind = "memory"\n[auth]\nallow_anonymous = false\n')
    service.configure(
        '[store]\nkind = "memory"\n[auth.keys.x]\nsha256 = "0123456789ab:' + "0" * 64 + '"\nscopes = ["read"]\n'
    )
    service.start()
    screen = terminal("top", ERELONG_URL=service.url)

    code = screen.wait()
    service.kill()

    assert code == 4
    assert screen.is_restored
    assert "key" in screen.text


def test_lost_service_is_shown_until_it_is_back(terminal: Terminal, tmp_path: Path) -> None:
    service = ServiceProcess(folder=tmp_path, config='[store]\nkind = "memory"\n')
    service.start()
    service.keep_port()
    screen = terminal("top", ERELONG_URL=service.url)
    screen.wait_for("live")

    service.kill()
    screen.wait_for("no response since ")
    service.start()
    screen.wait_for("live")
    screen.press("q")
    service.kill()

    assert screen.wait() == 0


@pytest.mark.parametrize("options", [(), ("--once",)], ids=["screen", "once"])
@pytest.mark.parametrize("answer", ["[]", "{}"])
def test_answer_that_cannot_be_understood_ends_it(terminal: Terminal, answer: str, options: tuple[str, ...]) -> None:
    class Odd(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(answer.encode())

    with HTTPServer(("127.0.0.1", 0), Odd) as service:
        threading.Thread(target=service.serve_forever, daemon=True).start()
        screen = terminal("top", *options, ERELONG_URL=f"http://127.0.0.1:{service.server_port}")
        code = screen.wait()
        service.shutdown()

    assert code == 1
    assert screen.is_restored
    assert "cannot read the response of http://127.0.0.1" in screen.text
    assert "Traceback" not in screen.text


def test_profile_that_confirms_asks_for_another_key(
    terminal: Terminal, client: Client, service_url: str, tmp_path: Path, queue: str
) -> None:
    profiles = tmp_path / "config" / "erelong" / "cli.toml"
    profiles.parent.mkdir(parents=True)
    profiles.write_text(f'[profiles.default]\nurl = "{service_url}"\nconfirm = true\n')
    held = f"000-{queue}"
    client.queue(held).pause()
    screen = terminal("top")
    screen.wait_for("sort: due")
    screen.press("sss")
    screen.wait_for("sort: name")
    go_up_to(screen, held)

    screen.press("p")
    screen.wait_for(f"Resume {held} at {service_url}? Press y to confirm.")
    screen.press("n")
    assert client.queue(held).get().paused
    screen.press("p")
    screen.wait_for("Press y")
    screen.press("y")
    screen.wait_for(f"{held} resumed")
    screen.press("q")

    assert screen.wait() == 0


@pytest.mark.parametrize("options", [{"TERM": "dumb"}, {"NO_COLOR": "1"}])
def test_one_frame_is_printed_without_a_usable_terminal(
    erelong: Erelong, monkeypatch: pytest.MonkeyPatch, options: dict[str, str]
) -> None:
    for name, value in options.items():
        monkeypatch.setenv(name, value)

    ended = erelong("top")

    assert ended.code == 0
    assert "waiting " in ended.out
    assert "\x1b" not in ended.out
    assert not ended.out.endswith("\n\n")


def test_one_frame_needs_a_service(erelong: Erelong) -> None:
    ended = erelong("top", "--once", "--url", "http://127.0.0.1:9", "--request-timeout", "0.2")

    assert ended.code == 69
    assert "no connection to http://127.0.0.1:9" in ended.out
