"""The sources of settings: lines of the file, environment variables, files with secrets."""

from __future__ import annotations

from pathlib import Path

import pytest

from erelong.settings.kinds import KindSettings
from erelong.settings.load import find_near_misses, load
from erelong.settings.queues import QueueSettings, Rate, RetryPatch
from erelong.settings.section import ConfigError

SHIPPED = Path(__file__).parents[2] / "config.toml"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of config.toml in the working directory."""
    monkeypatch.chdir(tmp_path)
    return Path("config.toml")


def problems(path: Path, env: dict[str, str]) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(path, env)
    return list(caught.value.problems)


def test_variable_of_a_renamed_section_names_the_new_one(file: Path) -> None:
    file.write_text("")
    problem = "ERELONG_HTTP__PROXY: http: no such setting; its name is [webhooks]"

    assert problems(file, {"ERELONG_HTTP__PROXY": "http://u:canary@h:1"}) == [problem]


def test_line_of_a_key_is_not_searched_inside_a_multiline_string(file: Path) -> None:
    file.write_text('[server]\nhost = """\n[store]\nport = 5\n"""\nport = "x"\n[store] # the store\nkind = 1\n')

    places = [problem.split(" ")[0] for problem in problems(file, {})]

    assert places == ["config.toml:6:", "config.toml:8:"]


def test_environment_overrides_the_file(file: Path) -> None:
    file.write_text("[server]\nport = 9000\n[limits]\nmax_wait = 5\n[queues.Mail]\nconcurrency = 7\n")
    env = {
        "ERELONG_SERVER__PORT": "9001",
        "erelong_server__host": "0.0.0.0",
        "ERELONG_QUEUES__MAIL__OVERFLOW": "wait",
        "ERELONG_QUEUES__MAIL__RATE": "{ per_second = 2.5 }",
        "ERELONG_AUTH__ALLOW_ANONYMOUS": "true",
        "ERELONG_KINDS__SLOW__PYTHON": "jobs:slow",
        "ERELONG_KINDS__SLOW__RETRY__MAX_ATTEMPTS": "1",
        "ERELONG_JOBS__AGING": "1h",
        "ERELONG_CONFIG": "not ours to read",
        "OTHER__NAME": "1",
    }

    config = load(file, env)

    assert (config.server.host, config.server.port, config.limits.max_wait) == ("0.0.0.0", 9001, 5.0)
    assert config.queues == {"Mail": QueueSettings(concurrency=7, overflow="wait", rate=Rate(per_second=2.5))}
    assert config.kinds["slow"] == KindSettings(python="jobs:slow", retry=RetryPatch(max_attempts=1))
    assert config.auth.allow_anonymous
    assert config.jobs.aging == 3600.0


def test_number_in_the_environment_is_text_for_a_text_setting() -> None:
    config = load(SHIPPED, {"ERELONG_STORE__PATH": "2026", "ERELONG_SERVER__HOST": "1.5"})

    assert config.store.path == Path("2026")
    assert config.server.host == "1.5"


def test_value_from_a_file_is_stripped(tmp_path: Path) -> None:
    secret = tmp_path / "port"
    secret.write_text("\n 9000\n")

    assert load(SHIPPED, {"ERELONG_SERVER__PORT_FILE": str(secret)}).server.port == 9000


def test_wrong_value_from_a_file_is_not_shown(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hush hush")

    assert problems(SHIPPED, {"ERELONG_SERVER__PORT_FILE": str(secret)}) == [
        f"ERELONG_SERVER__PORT_FILE ({secret}): server.port: should be a valid integer"
    ]


@pytest.mark.parametrize(
    ("env", "problem"),
    [
        ({"ERELONG_SERVER__PORT": "x"}, 'ERELONG_SERVER__PORT: server.port = "x": should be a valid integer'),
        ({"ERELONG_SERVER__PORT": ""}, 'ERELONG_SERVER__PORT: server.port = "": should be a valid integer'),
        ({"ERELONG_SERVER__HOST": ""}, 'ERELONG_SERVER__HOST: server.host = "": String should have at least 1'),
        ({"ERELONG_SERVER__PROT": "1"}, "ERELONG_SERVER__PROT: server.prot: no such setting; did you mean port?"),
        ({"ERELONG_SEVER__PORT": "1"}, "ERELONG_SEVER__PORT: sever: no such setting; did you mean server?"),
        ({"ERELONG_SERVER__": "1"}, "ERELONG_SERVER__: is not the name of a setting: write ERELONG_SECTION__KEY"),
        ({"ERELONG___PORT": "1"}, "ERELONG___PORT: is not the name of a setting: write ERELONG_SECTION__KEY"),
        (
            {"ERELONG_SERVER__PORT__X": "1"},
            "ERELONG_SERVER__PORT__X: server.port is a value, not a table: remove one of the two",
        ),
        (
            {"ERELONG_SERVER__PORT_FILE": "/missing/file"},
            "ERELONG_SERVER__PORT_FILE: /missing/file cannot be read: No such file or directory",
        ),
    ],
)
def test_wrong_variable_is_reported_by_name(env: dict[str, str], problem: str) -> None:
    (message,) = problems(SHIPPED, env)

    assert message.startswith(problem)


@pytest.mark.parametrize(
    ("variable", "value", "meant"),
    [
        ("ERELONG_SERVER_PORT", "9000", "ERELONG_SERVER__PORT"),
        ("erelong_workers_concurrency", "5", "ERELONG_WORKERS__CONCURRENCY"),
        ("ERELONG_JOBS_RETRY_MAX_ATTEMPTS", "5", "ERELONG_JOBS__RETRY__MAX_ATTEMPTS"),
        ("ERELONG_JOBS_RETRY", "{ delay = 1 }", "ERELONG_JOBS__RETRY"),
        ("ERELONG_AUTH_KEYS", "{}", "ERELONG_AUTH__KEYS"),
        ("ERELONG_WEBHOOKS_SIGNING_SECRETS_FILE", "/run/secrets/x", "ERELONG_WEBHOOKS__SIGNING_SECRETS_FILE"),
        ("ERELONG_SERVER_PORT", "tcp://10.0.0.1:8080", None),
        ("ERELONG_SERVER__PORT", "9000", None),
        ("ERELONG_SERVER_SERVICE_HOST", "10.0.0.1", None),
        ("ERELONG_PORT", "9000", None),
        ("ERELONG_SERVER", "x", None),
        ("ERELONG_SERVER_PROT", "9000", None),
        ("SERVER_PORT", "9000", None),
    ],
)
def test_variable_with_one_underscore_too_few_is_found(variable: str, value: str, meant: str | None) -> None:
    assert find_near_misses({variable: value}) == ({} if meant is None else {variable: meant})


def test_value_set_twice_in_the_environment_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "port"
    path.write_text("9000")

    assert problems(SHIPPED, {"ERELONG_SERVER__PORT": "1", "ERELONG_SERVER__PORT_FILE": str(path)}) == [
        f"ERELONG_SERVER__PORT_FILE ({path}): server.port is also set by ERELONG_SERVER__PORT: remove one of them"
    ]


def test_problem_inside_a_table_set_by_a_variable_names_the_variable(file: Path) -> None:
    file.write_text("[queues.mail]\nconcurrency = 5\n")

    (message,) = problems(file, {"ERELONG_QUEUES__MAIL": "{ concurrency = 0 }"})

    assert message.startswith("ERELONG_QUEUES__MAIL: queues.mail.concurrency = 0: ")


def test_text_with_more_toml_than_one_value_stays_text() -> None:
    assert load(SHIPPED, {"ERELONG_SERVER__HOST": '"a"\nport = 1'}).server.host == '"a"\nport = 1'


def test_problems_of_the_file_and_the_environment_are_reported_together(file: Path) -> None:
    file.write_text("[server]\nport = 0x10000\n")

    messages = problems(file, {"ERELONG_LOG__LEVEL": "loud", "ERELONG_LOG__": "1"})

    assert [problem.split(": ")[0] for problem in messages] == ["ERELONG_LOG__", "config.toml:2", "ERELONG_LOG__LEVEL"]


def test_url_of_a_database_can_be_in_a_file_and_is_not_shown(tmp_path: Path) -> None:
    (tmp_path / "url").write_text("postgresql://u:canary@h/db\n")
    environment = {"ERELONG_STORE__KIND": "postgres", "ERELONG_STORE__URL_FILE": str(tmp_path / "url")}

    store = load(None, environment).store

    assert store.url.get_secret_value() == "postgresql://u:canary@h/db"
    assert "canary" not in str(store)
