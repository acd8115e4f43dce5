"""Settings: the shipped file is the manual, every problem names its source, patches and layers merge."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel, ValidationError

from erelong.settings.kinds import KindSettings
from erelong.settings.load import load
from erelong.settings.queues import LabelConcurrency, QueueSettings, Rate, Retention, Retry, RetryPatch, layered, merged
from erelong.settings.section import ConfigError, Section
from erelong.settings.sections import ApiKey, Config

SHIPPED = Path(__file__).parents[2] / "config.toml"

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Return a function that writes config.toml into the working directory and returns its path."""
    monkeypatch.chdir(tmp_path)

    def write(text: str) -> Path:
        (tmp_path / "config.toml").write_text(text, encoding="utf-8")
        return Path("config.toml")

    return write


def problems(path: Path | None, env: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(path, env or {})
    return list(caught.value.problems)


# The shipped file


def test_shipped_file_states_the_defaults() -> None:
    assert load(SHIPPED, {}) == Config()


def test_shipped_file_states_every_default_setting() -> None:
    stated = tomllib.loads(SHIPPED.read_text(encoding="utf-8"))

    assert _leaves(stated) == _leaves(Config().model_dump(mode="json", exclude={"kinds", "queues"}))


def test_shipped_file_mentions_every_field_of_every_section() -> None:
    text = SHIPPED.read_text(encoding="utf-8")

    unmentioned = {
        f"{section.__name__}.{name}"
        for section in _sections(Config)
        for name in section.model_fields
        if section is not Config and not re.search(rf"^#?\[?(?:.*[{{, .])?{name}(?: =|[\].])", text, re.MULTILINE)
    }

    assert unmentioned == set()


def test_examples_of_the_shipped_file_are_valid(write: Write) -> None:
    examples = re.sub(r"^#(?=[\[a-z])", "", SHIPPED.read_text(encoding="utf-8"), flags=re.MULTILINE)

    config = load(write(examples), {})

    shown = [config.kinds[name].model_fields_set for name in ("resize", "backup", "thumbnail")]
    assert set(KindSettings.model_fields) == set().union(*shown)
    assert set(ApiKey.model_fields) == config.auth.keys["mail-app"].model_fields_set
    assert set(QueueSettings.model_fields) == config.queues["mail"].model_fields_set
    assert config.queues["mail"].retention == QueueSettings().retention
    assert config.queues["mail"].model_copy(
        update={"rate": None, "label_concurrency": None, "timeout": None, "retry": None}
    ) == QueueSettings()  # fmt: skip


# Files


def test_no_file_in_the_working_directory_gives_the_defaults(write: Write) -> None:
    assert load(None, {}) == Config()


def test_file_of_the_working_directory_is_read_by_default(write: Write) -> None:
    write("[server]\nport = 9000\n")

    assert load(None, {}).server.port == 9000


def test_unreadable_file_of_the_working_directory_is_a_problem(write: Write) -> None:
    write("").unlink()
    Path("config.toml").symlink_to("config.toml")

    assert problems(None) == ["config.toml: cannot be read: Too many levels of symbolic links"]


def test_named_file_must_exist(tmp_path: Path) -> None:
    missing = tmp_path / "missing.toml"

    assert problems(missing) == [f"{missing}: cannot be read: No such file or directory"]


def test_config_error_exits_with_78() -> None:
    assert ConfigError(["one", "two"]).code == 78
    assert str(ConfigError(["one", "two"])) == "one\ntwo"


def test_data_directory_moves_the_store(write: Write) -> None:
    config = load(write('[store]\npath = "other.db"\n'), {}, data=Path("/data"))

    assert config.store.path == Path("/data/erelong.db")


def test_byte_order_mark_is_skipped(write: Write) -> None:
    assert load(write("\ufeff[server]\r\nport = 9000\r\n"), {}).server.port == 9000


@pytest.mark.parametrize(
    ("text", "line"),
    [("[server]\nport = \n", 2), ("[server]\n\nport = 1\nport = 2\n", 4), ('[server]\nhost = """\n', 3)],
)
def test_file_that_is_not_toml_names_the_line(write: Write, text: str, line: int) -> None:
    (problem,) = problems(write(text))

    assert problem.startswith("config.toml:")
    assert abs(int(problem.split(":")[1]) - line) <= 1
    assert "is not TOML" in problem


@pytest.mark.parametrize(
    "text", ["[webhooks]\n[log]\n[webhooks]\nper_host = 1\n", "[webhooks]\nper_host = 1\nper_host = 2\n"]
)
def test_duplicate_table_is_reported_with_the_remedy(write: Write, text: str) -> None:
    (problem,) = problems(write(text))

    assert problem.startswith("config.toml:3: is not TOML: Cannot ")
    assert "each table and each name in it may appear only once: add your lines to the existing table" in problem


def test_file_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(b'[server]\nhost = "\xff"\n')

    assert problems(path) == [f"{path}: is not UTF-8: invalid start byte at byte 17"]


# Problems


def test_every_problem_is_reported_with_its_line_name_value_and_bound(write: Write) -> None:
    path = write(
        """\
[server]
port = 99999
prot = 8081
idle_timeout = "5 minutes"

[queues.mail]
rate = { per_second = 0 }
retry.factor = 0.5
[queues."no good"]
[sever]
"""
    )

    assert problems(path) == [
        "config.toml:2: server.port = 99999: should be less than or equal to 65535",
        'config.toml:4: server.idle_timeout: "5 minutes" is not a duration: send seconds as a number, or text'
        ' such as "90s", "1h30m", "250ms", "PT5M" or "P1DT2H"',
        "config.toml:3: server.prot: no such setting; did you mean port? known here: host, port, loop,"
        " header_timeout, idle_timeout, body_timeout, drain_timeout",
        "config.toml:7: queues.mail.rate.per_second = 0: should be greater than 0",
        "config.toml:8: queues.mail.retry.factor = 0.5: should be greater than or equal to 1",
        'config.toml:9: queues."no good": should be 1 to 100 of A-Z a-z 0-9 . _ - (but not . or ..)',
        "config.toml:10: sever: no such setting; did you mean server? known here: server, limits, store, cluster, "
        "auth, jobs, schedules, workers, webhooks, log, kinds, queues",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[http]\nproxy = 'http://u:canary@h:1'\n", "config.toml:1: http: no such setting; its name is [webhooks]"),
        ("[server]\nmax_body = 1\n", "config.toml:2: server.max_body: no such setting; its name is limits.max_body"),
        ("server = 5\n", "config.toml:1: server = 5: "),
        ("\nserver.port = 'x'\n", 'config.toml:2: server.port = "x": should be a valid integer'),
        ("[server]\nport = 80.0\n", "config.toml:2: server.port = 80.0: should be a valid integer"),
        ("[server]\nport = true\n", "config.toml:2: server.port = true: should be a valid integer"),
        ("[server]\n'port' = -1 # no\n", "config.toml:2: server.port = -1: should be greater than or equal to 0"),
        ("[auth]\nallow_anonymous = 1\n", "config.toml:2: auth.allow_anonymous = 1: should be a valid boolean"),
        ("[log]\nlevel = 'loud'\n", "config.toml:2: log.level = \"loud\": should be 'debug', 'info'"),
        (
            "[workers]\nconcurrency = 0\n",
            "config.toml:2: workers.concurrency = 0: should be greater than or equal to 1",
        ),
        ("[jobs]\nwindow = 0.5\n", "config.toml:2: jobs.window = 0.5: should be greater than or equal to 1"),
        (
            "[store]\nkind = 'postgres'\nurl = 'mysql://u:canary@h'\n",
            "config.toml:3: store.url: should be the URL of a database such as postgresql://user@host/database",
        ),
        ("[store]\nkind = 'postgres'\n", 'config.toml:1: store: of kind "postgres" needs a `url`'),
        ("[cluster]\nttl = 0.5\n", "config.toml:2: cluster.ttl = 0.5: should be greater than or equal to 1"),
        ("[cluster]\nhold = 61\n", "config.toml:2: cluster.hold = 61: should be less than or equal to 60"),
        ("[cluster]\nlead = false\n", 'config.toml:2: cluster.lead = false: should be true with store.kind = "sqlite"'),
        ("[jobs]\ntimeout = 0\n", "config.toml:2: jobs.timeout = 0: should be greater than 0"),
        ("[jobs]\naging = -1\n", "config.toml:2: jobs.aging: -1 is negative"),
        ("[jobs.retry]\nmax_attempts = 1001\n", "config.toml:2: jobs.retry.max_attempts = 1001: "),
        ("[jobs.retry]\nfactor = nan\n", "config.toml:2: jobs.retry.factor = NaN: should be"),
        (
            "[queues.a]\nrate.per_second = inf\n",
            "config.toml:2: queues.a.rate.per_second = Infinity: should be a finite",
        ),
        ("[queues.a]\nrate = {}\n", "config.toml:2: queues.a.rate.per_second: is required"),
        (
            "[queues.a]\nretention.done = 1\n",
            "config.toml:2: queues.a.retention.done: no such setting; known here: suc",
        ),
        ("[queues.a.label_concurrency]\nlimit = 1\nlabel = 'a b'\n", "config.toml:3: queues.a.label_concurrency.label"),
        ("[kinds.a]\n", 'config.toml:1: kinds.a: has nothing to run: give python = "module:function"'),
        ("[kinds.a]\npython = 'os.system'\n", 'config.toml:2: kinds.a.python = "os.system": should name a module'),
        ("[kinds.a]\npython = 'm:f'\nisolation = 'vm'\n", 'config.toml:3: kinds.a.isolation = "vm": should be'),
        ("[kinds.a]\ncommand = []\n", "config.toml:2: kinds.a.command = []: List should have at least 1 item"),
        ("[kinds.a]\ncommand = ['']\n", "config.toml:2: kinds.a.command.0"),
        (
            "[kinds.a]\npython = 'm:f'\ncommand = ['true']\n",
            'config.toml:3: kinds.a.command = ["true"]: is one of two ways to run: give python or command, not both',
        ),
        (
            "[kinds.a]\ncommand = ['true']\nisolation = 'process'\n",
            'config.toml:3: kinds.a.isolation = "process": is for kinds with a python function',
        ),
        ("[kinds.a]\npython = 'm:f'\ndirectory = '/'\n", 'config.toml:3: kinds.a.directory = "/": is for kinds with'),
        ("[kinds.a]\npython = 'm:f'\nparams.x = 'y'\n", "config.toml:3: kinds.a.params: is for kinds with a comman"),
        (
            "[kinds.a]\npython = 'm:f'\nmemory = 100000000\n",
            'config.toml:3: kinds.a.memory = 100000000: is for kinds with a command, or with isolation = "process"',
        ),
        (
            "[kinds.a]\npython = 'm:f'\nisolation = 'thread'\nenvironment.X = '1'\n",
            "config.toml:4: kinds.a.environment: is for kinds with a command, or",
        ),
        ("[kinds.a]\ncommand = ['true']\nmemory = 1000\n", "config.toml:3: kinds.a.memory = 1000: should be greater"),
        ("[kinds.a]\ncommand = ['true']\nparams.'a b' = 'x'\n", 'config.toml:3: kinds.a.params."a b"'),
        ("[kinds.a]\ncommand = ['true']\nenvironment.A = 1\n", "config.toml:3: kinds.a.environment.A = 1: should be"),
        ("[kinds.http]\nmemory = 100000000\n", "config.toml:2: kinds.http.memory = 100000000: http is built in"),
        (
            "[kinds.a]\npython = 'm:f'\npthon = 1\n",
            "config.toml:3: kinds.a.pthon: no such setting; did you mean python?",
        ),
        (
            "[kinds.http]\ntimeout = 5\npython = 'm:f'\n",
            'config.toml:3: kinds.http.python = "m:f": http is built in and takes only timeout and retry',
        ),
        (
            "[queues.a]\nrate = 50\n",
            "config.toml:2: queues.a.rate = 50: should be a table: write rate = { per_second = 50 }",
        ),
        (
            f"[auth.keys.a]\nsha256 = '{'0' * 12}:{'0' * 64}'\nscopes = ['read']\nrate = 0.5\n",
            "config.toml:4: auth.keys.a.rate = 0.5: should be a table: write rate = { per_second = 0.5 }",
        ),
        ("[queues.a]\nrate = true\n", "config.toml:2: queues.a.rate = true: should be a table"),
        ("[queues.a]\nretention = '7d'\n", 'config.toml:2: queues.a.retention = "7d": should be a table'),
        ("[kinds.http]\ntimeout = '2d'\n", 'config.toml:2: kinds.http.timeout = "2d": should be at most jobs.max_'),
        ("[queues.a]\ntimeout = '2d'\n", 'config.toml:2: queues.a.timeout = "2d": should be at most jobs.max_timeo'),
        (
            "[kinds.http]\nretry = { delay = '9999d' }\n",
            'config.toml:2: kinds.http.retry.delay = "9999d": should be at most jobs.max_horizon, 315360000',
        ),
        (
            "[queues.a]\nretry = { max_delay = '9999d' }\n",
            'config.toml:2: queues.a.retry.max_delay = "9999d": should be at most jobs.max_horizon, 315360000',
        ),
        (
            "[jobs]\nmax_horizon = 60\nretry = { delay = '1h' }\n",
            'config.toml:3: jobs.retry.delay = "1h": should be at most jobs.max_horizon, 60',
        ),
        ("[jobs]\nmax_timeout = 30\n", "config.toml:1: jobs.timeout: should be at most jobs.max_timeout, 30"),
    ],
)
def test_wrong_setting_is_reported(write: Write, text: str, problem: str) -> None:
    (message,) = problems(write(text))

    assert message.startswith(problem)


# Queues and retries


def test_default_burst_is_per_second_and_at_least_one() -> None:
    assert Rate(per_second=50).burst == 50
    assert Rate(per_second=0.1).burst == 1
    assert Rate(per_second=50, burst=5).burst == 5


def test_settings_are_default_then_config_then_override_field_by_field() -> None:
    config = QueueSettings(concurrency=7, rate=Rate(per_second=2), retention=Retention(other=1.0))
    override = QueueSettings(rate=None, max_backlog=5, label_concurrency=LabelConcurrency(label="t", limit=1))

    assert layered(None, None) == QueueSettings()
    assert layered(config, None) == config
    assert layered(None, override) == override
    assert layered(config, override) == QueueSettings(
        concurrency=7,
        rate=None,
        max_backlog=5,
        label_concurrency=LabelConcurrency(label="t", limit=1),
        retention=Retention(other=1.0),
    )


def test_later_patch_of_a_retry_policy_wins_and_null_changes_nothing() -> None:
    queue = RetryPatch(max_attempts=3, delay=1.0)
    kind = RetryPatch(max_attempts=9, jitter=None)

    assert merged(Retry().policy) == Retry().policy
    assert merged(Retry().policy, queue, None, kind) == Retry(max_attempts=9, delay=1.0).policy


def test_retry_patch_has_the_fields_and_the_bounds_of_the_policy() -> None:
    assert list(RetryPatch.model_fields) == list(Retry.model_fields)
    for field, value in {"max_attempts": 0, "delay": -1, "factor": 0.9, "max_delay": -1, "jitter": 1.1}.items():
        for policy in (Retry, RetryPatch):
            with pytest.raises(ValidationError):
                policy.model_validate({field: value})


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Config().server.port = 1  # type: ignore[misc]  # the assignment under test


def test_queue_settings_from_json_take_durations_as_text_and_give_seconds() -> None:
    body = (
        b'{"retention": {"succeeded": "1d"}, "timeout": "PT5M", "retry": {"delay": "250ms"}, "rate": {"per_second": 5}}'
    )

    settings = QueueSettings.model_validate_json(body)

    assert settings.model_fields_set == {"retention", "timeout", "retry", "rate"}
    assert settings.model_dump(exclude_unset=True) == {
        "retention": {"succeeded": 86_400.0},
        "timeout": 300.0,
        "retry": {"delay": 0.25},
        "rate": {"per_second": 5.0, "burst": 5.0},
    }
    assert settings.retention.other == 2_592_000.0


@pytest.mark.parametrize("mode", ["validation", "serialization"])
def test_every_field_a_client_can_set_is_described(mode: Any) -> None:
    schema = QueueSettings.model_json_schema(mode=mode)
    fields = dict(schema["properties"])
    for definition in schema["$defs"].values():
        fields |= definition["properties"]

    assert [name for name, field in fields.items() if not {"description", "$ref"} & field.keys()] == []


def _sections(section: type[BaseModel]) -> Iterator[type[BaseModel]]:
    yield section
    for field in section.model_fields.values():
        for inner in _types(field.annotation):
            yield from _sections(inner)


def _types(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        yield annotation
    for argument in get_args(annotation):
        yield from _types(argument)


def _leaves(tree: dict[str, Any], *prefix: str) -> dict[str, object]:
    leaves: dict[str, object] = {}
    for name, value in tree.items():
        leaves |= _leaves(value, *prefix, name) if isinstance(value, dict) else {".".join((*prefix, name)): value}
    return leaves
