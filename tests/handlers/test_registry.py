"""The registry: built-in and declared kinds by name, and the problems of declarations."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from erelong.handlers.registry import make_kinds
from erelong.settings.kinds import KindSettings
from erelong.settings.queues import RetryPatch
from erelong.settings.section import ConfigError
from erelong.settings.sections import Config
from tests.handlers.attempts import FUNCTIONS, handler_of, make_attempt, make_python


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(sys, "path", [*sys.path])
    known = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - known:
        del sys.modules[name]


def test_built_in_and_declared_kinds_are_sorted() -> None:
    kinds = {
        "zip": KindSettings(python=f"{FUNCTIONS}:add"),
        "add": KindSettings(python=f"{FUNCTIONS}:add"),
        "http": KindSettings(retry=RetryPatch(max_attempts=1)),
    }

    handlers = make_kinds(Config(kinds=kinds))

    assert [(name, handler.type) for name, handler in handlers.items()] == [
        ("add", "python"),
        ("echo", "echo"),
        ("http", "http"),
        ("zip", "python"),
    ]


@pytest.mark.real_loop
async def test_functions_are_imported_from_the_folders(folder: Path) -> None:
    (folder / "my_tasks.py").write_text("def double(x: int) -> int:\n    return 2 * x\n")
    config = Config(kinds={"double": KindSettings(python="my_tasks:double")})

    handlers = make_kinds(config, folders=[folder])

    assert await handler_of(handlers["double"]).run(make_attempt(b'{"x": 4}')) == b"8"


def test_folders_do_not_shadow_installed_packages(folder: Path) -> None:
    (folder / "orjson.py").write_text("raise RuntimeError\n")

    make_kinds(Config(), folders=[folder, folder])

    assert sys.path.count(str(folder)) == 1
    assert sys.path[-1] == str(folder)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import no_such_library\n", 'importing "broken" failed: ModuleNotFoundError: .*no_such_library.*broken.py:1'),
        ("x = (\n", 'importing "broken" failed: SyntaxError'),
        ("\n1 / 0\n", 'importing "broken" failed: ZeroDivisionError: division by zero .*broken.py:2'),
        ("raise SystemExit(3)\n", 'importing "broken" failed: SystemExit: 3'),
    ],
)
def test_module_that_fails_to_import_is_named_with_the_failure(folder: Path, source: str, message: str) -> None:
    (folder / "broken.py").write_text(source)

    with pytest.raises(ConfigError, match=message):
        make_kinds(Config(kinds={"call": KindSettings(python="broken:run")}), folders=[folder])


def test_missing_module_is_named_with_the_import_path(folder: Path) -> None:
    with pytest.raises(
        ConfigError, match=r'kinds\.call\.python = "not_there\.at_all:run": no module "not_there"'
    ) as error:
        make_kinds(Config(kinds={"call": KindSettings(python="not_there.at_all:run")}), folders=[folder])

    assert str(folder) in str(error.value)


@pytest.fixture
def shadowed(folder: Path) -> Path:
    """Return a folder whose mail/tasks.py is shadowed by another."""
    for name, function in (("library", "other"), ("mine", "send")):
        (folder / name / "mail").mkdir(parents=True)
        (folder / name / "mail" / "__init__.py").write_text("")
        (folder / name / "mail" / "tasks.py").write_text(f"async def {function}() -> None: ...\n")
    sys.path.append(str(folder / "library"))
    return folder / "mine"


def test_function_of_a_package_that_shadows_another_is_a_warning(
    shadowed: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make_kinds(Config(kinds={"mail": KindSettings(python="mail.tasks:other")}), folders=[shadowed])

    ((event, fields),) = [(record.getMessage(), record.__dict__["fields"]) for record in caplog.records]
    other = shadowed.parent / "library" / "mail" / "tasks.py"
    assert (event, fields["kind"]) == ("kind_shadowed", "mail")
    assert fields["reason"].startswith(f"imported from {other}, which shadows {shadowed / 'mail/tasks.py'}")


@pytest.mark.parametrize(
    ("path", "problem", "imported"),
    [("mail.tasks:send", 'has no "send"', "tasks.py"), ("mail.later:send", 'no module "mail.later"', "__init__.py")],
)
def test_function_in_a_shadowed_package_is_a_problem_with_the_reason(
    shadowed: Path, path: str, problem: str, imported: str
) -> None:
    (shadowed / "mail" / "later.py").write_text("async def send() -> None: ...\n")

    with pytest.raises(ConfigError) as caught:
        make_kinds(Config(kinds={"mail": KindSettings(python=path)}), folders=[shadowed])

    expected = shadowed / f"{path.partition(':')[0].replace('.', '/')}.py"
    message = str(caught.value)
    assert problem in message
    assert f"imported from {shadowed.parent}/library/mail/{imported}, which shadows {expected}" in message


def test_module_named_like_one_of_the_library_is_a_problem(folder: Path) -> None:
    for name in ("time", "queue"):
        (folder / f"{name}.py").write_text("def send() -> None: ...\n")

        with pytest.raises(ConfigError, match=f"which shadows {folder}/{name}.py: rename one of them"):
            make_kinds(Config(kinds={"mail": KindSettings(python=f"{name}:send")}), folders=[folder])


@pytest.mark.parametrize("file", ["jobs.py", "jobs/__init__.py"])
def test_module_of_the_folder_itself_shadows_nothing(folder: Path, file: str, caplog: pytest.LogCaptureFixture) -> None:
    (folder / file).parent.mkdir(exist_ok=True)
    (folder / file).write_text("def send() -> None: ...\n")
    (folder / "link").symlink_to(folder)

    make_kinds(Config(kinds={"mail": KindSettings(python="jobs:send")}), folders=[folder / "link", folder])

    assert caplog.records == []


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("absent", r'functions\.py\) has no "absent"'),
        ("Printer", '"Printer" is a class, not a function'),
        ("number", '"number" is a int, not a function'),
        ("generator", '"generator" is a generator'),
        ("takes_lock", "its annotations cannot become a schema: .*lock"),
        ("returns_lock", "its annotations cannot become a schema: .*lock"),
        ("takes_stars", r"params, which have names, cannot fill \*numbers"),
        ("takes_unknown", "its annotations cannot be read: .*Unknown.*TYPE_CHECKING"),
        ("takes_field", "the default of x is a Field: write Annotated"),
    ],
)
def test_function_that_cannot_be_a_kind_stops_the_start(function: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_python(function)


def test_isolation_must_suit_the_function() -> None:
    kinds = {
        "a": KindSettings(python=f"{FUNCTIONS}:add", isolation="async"),
        "b": KindSettings(python=f"{FUNCTIONS}:add_async", isolation="thread"),
    }

    with pytest.raises(ConfigError) as error:
        make_kinds(Config(kinds=kinds))

    assert [problem.split(": ")[1] for problem in error.value.problems] == [
        'isolation = "async" needs an "async def", and this is a plain function',
        'isolation = "thread" needs a plain function, and this is an "async def"',
    ]
