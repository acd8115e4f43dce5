"""The commands and their exit codes."""

from __future__ import annotations

import re
import shlex
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from erelong import __version__, main
from erelong.cli import commands
from erelong.cli.parser import main as run
from erelong.errors import StoreInUse
from erelong.model.caller import Scope
from erelong.settings.api_keys import Keyring, fingerprint_of, new_key
from erelong.settings.load import load
from erelong.settings.sections import Config


@pytest.fixture(autouse=True)
def _no_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in a folder without config.toml, with the log unchanged and no environment variables of erelong."""
    monkeypatch.delenv("ERELONG_URL", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("erelong.telemetry.log.setup", lambda *_: None)


Served = list[tuple[Config, Sequence[Path]]]


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Served:
    """The arguments of `serve`, which returns at once."""
    calls: Served = []

    def serve(config: Config, folders: Sequence[Path], *_: object) -> int:
        calls.append((config, folders))
        return 0

    monkeypatch.setattr(main, "serve", serve)
    return calls


# serve


def test_serve_runs_the_service_with_the_settings(served: Served, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('[server]\nport = 1234\nhost = "::1"\n')

    assert run(["serve"]) == 0

    ((config, folders),) = served
    assert (config.server.port, config.server.host) == (1234, "::1")
    assert set(folders) == {tmp_path}


def test_options_override_the_settings(served: Served, tmp_path: Path) -> None:
    settings = tmp_path / "other" / "my.toml"
    settings.parent.mkdir()
    settings.write_text('[server]\nport = 1234\nhost = "::1"\n')

    run(["serve", "--config", str(settings), "--port", "0", "--host", "127.0.0.1", "--data", str(tmp_path / "d")])

    ((config, folders),) = served
    assert (config.server.port, config.server.host) == (0, "127.0.0.1")
    assert config.store.path == tmp_path / "d" / "erelong.db"
    assert [*folders] == [settings.parent, tmp_path]


def test_exit_of_the_service_becomes_its_code_and_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], served: Served
) -> None:
    def refuse(*_: object) -> int:
        raise StoreInUse("another process owns data/erelong.db; stop it first")

    monkeypatch.setattr(main, "serve", refuse)

    assert run(["serve"]) == 75
    assert capsys.readouterr().err == "erelong: another process owns data/erelong.db; stop it first\n"


@pytest.mark.parametrize("command", ["serve", "check-config"])
def test_variable_with_a_missing_underscore_is_a_warning(
    command: str, served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("ERELONG_SERVER_PORT", "9000")
    monkeypatch.setenv("ERELONG_STORE_PATH", "tcp://10.0.0.1:80")

    assert run([command]) == 0

    logged = [(record.getMessage(), record.__dict__["fields"]) for record in caplog.records]
    assert logged == [("variable_ignored", {"variable": "ERELONG_SERVER_PORT", "write": "ERELONG_SERVER__PORT"})]


# check-config


def test_valid_settings_are_reported_as_valid(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check-config"]) == 0
    assert capsys.readouterr().out.startswith("the settings are valid; kinds: echo, http; ")


def test_source_of_valid_settings_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(["check-config"])
    defaults = capsys.readouterr().out
    (tmp_path / "config.toml").touch()
    run(["check-config"])
    found = capsys.readouterr().out

    assert defaults.endswith(f"; there is no config.toml in {tmp_path}: the defaults apply\n")
    assert found.endswith(f"; read from {tmp_path}/config.toml\n")


def test_every_problem_of_invalid_settings_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.toml").write_text("[server]\nport = 70000\n[workers]\nconcurency = 5\n")

    assert run(["check-config", "--config", "bad.toml"]) == 78

    errors = capsys.readouterr().err
    assert "server.port = 70000" in errors
    assert "did you mean concurrency?" in errors


def test_missing_settings_file_is_a_problem(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check-config", "--config", "gone.toml"]) == 78
    assert "gone.toml" in capsys.readouterr().err


def test_invalid_kind_is_a_problem(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.toml").write_text('[kinds.mail]\npython = "no_such_module_of_ours:send"\n')

    assert run(["check-config"]) == 78
    assert "no_such_module_of_ours" in capsys.readouterr().err


def test_open_listener_without_keys_is_a_problem(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check-config", "--host", "0.0.0.0"]) == 78
    assert "open to others and there are no keys" in capsys.readouterr().err


# new-key


def test_new_key_prints_a_key_and_matching_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = "new-key --name mail-app --scopes submit,read --queues mail,sms --rate 0.5"

    assert run(line.split()) == 0

    printed = capsys.readouterr().out
    (key,) = re.findall(r"^erl_[0-9a-f]{12}_[A-Za-z0-9_-]{43}$", printed, re.MULTILINE)
    (lines,) = re.findall(r"^\[auth.keys.*?(?=\n\n)", printed, re.MULTILINE | re.DOTALL)
    (tmp_path / "config.toml").write_text(lines)
    entry = load(None, {}).auth.keys["mail-app"]
    assert Keyring(callers={entry.sha256: entry.caller("a")}).find(key) == entry.caller("a")
    assert (entry.scopes, entry.queues) == ([Scope.SUBMIT, Scope.READ], ["mail", "sms"])
    assert entry.rate is not None
    assert (entry.rate.per_second, entry.rate.burst) == (0.5, 1.0)
    assert {path.name for path in tmp_path.iterdir()} == {"config.toml"}


def test_new_key_can_be_set_in_the_environment(capsys: pytest.CaptureFixture[str]) -> None:
    run(["new-key", "--name", "Mail-app.2", "--scopes", "work"])

    (line,) = re.findall(r"^ERELONG_.*$", capsys.readouterr().out, re.MULTILINE)
    name, _, value = shlex.split(line)[0].partition("=")
    assert re.fullmatch("[A-Z0-9_]+", name)
    config = load(None, {name: value})
    assert config.auth.keys["mail_app_2"].scopes == [Scope.WORK]


@pytest.mark.parametrize("name", ["upload_file", "a__b", "_", "..", "FILE", "Mail-File", "x_"])
def test_variable_of_a_new_key_is_valid_for_any_name(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    run(["new-key", "--name", name, "--scopes", "work"])

    (line,) = re.findall(r"^ERELONG_.*$", capsys.readouterr().out, re.MULTILINE)
    variable, _, value = shlex.split(line)[0].partition("=")
    (entry,) = load(None, {variable: value}).auth.keys.values()
    assert entry.scopes == [Scope.WORK]


def test_new_key_without_a_name_gets_one_from_its_fingerprint(capsys: pytest.CaptureFixture[str]) -> None:
    run(["new-key", "--scopes", "read"])
    printed = capsys.readouterr().out

    (id,) = re.findall("^erl_([0-9a-f]{12})_", printed, re.MULTILINE)
    assert f"[auth.keys.key-{id}]" in printed


def test_no_two_new_keys_are_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(20):
        run(["new-key", "--scopes", "read"])

    keys = re.findall("^erl_.*$", capsys.readouterr().out, re.MULTILINE)
    assert len({key[:17] for key in keys}) == len({key[17:] for key in keys}) == 20


def test_name_with_a_dot_is_one_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(["new-key", "--name", "mail.app", "--scopes", "read"])
    (tmp_path / "config.toml").write_text(capsys.readouterr().out.partition("reveal it:")[2].partition("\nOr in")[0])

    assert [*load(None, {}).auth.keys] == ["mail.app"]


def test_open_listener_with_a_key_is_valid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entry = f'[auth.keys.app]\nsha256 = "{fingerprint_of(new_key())}"\nscopes = ["read"]\n'
    (tmp_path / "config.toml").write_text(f'[server]\nhost = "0.0.0.0"\n{entry}')

    assert run(["check-config"]) == 0
    assert capsys.readouterr().out.startswith("the settings are valid; kinds: echo, http; ")


# health


@contextmanager
def answering(answer: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[int]:
    """Run a server for one request; yield its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.handle_request, daemon=True)
        thread.start()
        yield server.server_address[1]
        thread.join(timeout=5)


def with_status(status: int) -> Callable[[BaseHTTPRequestHandler], None]:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status if request.path == "/livez" else 404)
        request.end_headers()

    return answer


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "localhost"])
def test_service_that_answers_is_alive(host: str, capsys: pytest.CaptureFixture[str]) -> None:
    with answering(with_status(200)) as port:
        assert run(["health", "--host", host, "--port", str(port)]) == 0

    assert capsys.readouterr().out == "alive\n"


def test_service_with_another_status_is_not_alive(capsys: pytest.CaptureFixture[str]) -> None:
    with answering(with_status(500)) as port:
        assert run(["health", "--port", str(port)]) == 1

    assert "answered 500" in capsys.readouterr().err


def test_server_without_http_is_not_alive(capsys: pytest.CaptureFixture[str]) -> None:
    def handshake(request: BaseHTTPRequestHandler) -> None:
        request.wfile.write(b"220 mail.example ESMTP\r\n")

    with answering(handshake) as port:
        assert run(["health", "--port", str(port)]) == 1

    assert "no response" in capsys.readouterr().err


@pytest.mark.parametrize("place", ["option", "variable"])
def test_service_at_a_url_is_alive(
    place: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with answering(with_status(200)) as port:
        url = f"http://127.0.0.1:{port}/"
        monkeypatch.setenv("ERELONG_URL", url if place == "variable" else "http://127.0.0.1:1")
        assert run(["health", *(["--url", url] if place == "option" else [])]) == 0

    assert capsys.readouterr().out == "alive\n"


def test_options_of_health_come_before_the_url_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ERELONG_URL", "http://127.0.0.1:1")
    with answering(with_status(200)) as port:
        assert run(["health", "--port", str(port)]) == 0


def test_address_that_is_no_url_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["health", "--url", "localhost"]) == 1
    assert "'localhost' is not the URL of a service" in capsys.readouterr().err


def test_closed_port_is_not_alive(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        assert run(["health", "--port", str(listener.getsockname()[1])]) == 1

    assert "no response from http://127.0.0.1:" in capsys.readouterr().err


# the command line


@pytest.mark.parametrize(
    "line",
    [
        "serve --prot 1",
        "serve --port 70000",
        "serve --port -1",
        "serve --port http",
        "new-key",
        "new-key --scopes all",
        "new-key --scopes read,",
        "new-key --scopes read --queues a,,b",
        "new-key --scopes read --name a/b",
        "new-key --scopes read --rate 0",
        "new-key --scopes read --rate inf",
        "new-key --scopes read --rate nan",
        "new-key --scopes read --rate much",
    ],
    ids=repr,
)
def test_invalid_command_line_is_refused(line: str, capsys: pytest.CaptureFixture[str], served: Served) -> None:
    with pytest.raises(SystemExit) as caught:
        run(line.split())

    assert (caught.value.code, served) == (2, [])
    assert f"; see: erelong {line.split()[0]} --help" in capsys.readouterr().err


def test_wrong_port_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run(["serve", "--port", "abc"])

    told = "erelong serve: argument --port: abc is not a valid port: give one from 0 to 65535 (0: any free port)"
    assert capsys.readouterr().err.startswith(told)


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert (commands.main(["--version"]), capsys.readouterr().out) == (0, f"erelong {__version__}\n")


# the virtual clock


@pytest.mark.parametrize(
    ("given", "start"),
    [
        ([], None),
        (["--virtual-clock"], 0),
        (["--virtual-clock=now"], 0),
        (["--virtual-clock=1970-01-02T00:00:00+01:00"], 82_800_000_000),
    ],
)
def test_virtual_clock_starts_at_an_instant(monkeypatch: pytest.MonkeyPatch, given: list[str], start: int) -> None:
    starts = []

    def serve(*arguments: object) -> int:
        starts.append(arguments[3])
        return 0

    monkeypatch.setattr(main, "serve", serve)

    assert run(["serve", *given]) == 0
    assert starts == [start]


@pytest.mark.parametrize("text", ["tomorrow", "2027-01-01T00:00:00", "1969-12-31T23:59:59Z", "2200-01-01T00:00:00Z"])
def test_invalid_start_of_the_virtual_clock_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run(["serve", f"--virtual-clock={text}"])

    assert ended.value.code == 2
    assert text in capsys.readouterr().err


def test_virtual_clock_keeps_jobs_in_memory_unless_a_folder_is_given(served: Served, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('[store]\npath = "real.db"\n')

    run(["serve", "--virtual-clock"])
    run(["serve", "--virtual-clock", "--data", str(tmp_path)])
    run(["serve"])

    stores = [(config.store.kind, config.store.path.name) for config, _ in served]
    assert stores == [("memory", "real.db"), ("sqlite", "erelong.db"), ("sqlite", "real.db")]
