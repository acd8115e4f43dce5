"""Rules of the code: no callbacks to higher layers, broad catches only at known boundaries, short modules."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.support import SOURCE

PACKAGE = SOURCE / "erelong"
PROCESS = PACKAGE / "handlers" / "process"  # asyncio's protocols and pipes speak in callbacks
ALLOWED = frozenset({"now", "tick"})
MAX_LINES = 400
MAX_LINES_OF_MAIN = 150

# The modules that may catch everything, since they log, count or answer any error.
BROAD = {
    # around a handler, whose exception may not even have a text
    "engine/verdicts.py": 2,
    "engine/workers.py": 1,
    "handlers/python/loading.py": 2,
    "handlers/process/worker_loop.py": 1,
    # around a lap of a duty, an item of its batch, and a lap of the watchdog
    "duties/duty.py": 2,
    "monitoring/watchdog.py": 1,
    # around a request
    "web/boundary.py": 1,
    # around the answers and the results that an executor gets
    "client/executor/follower.py": 1,
    "client/executor/future.py": 1,
    # around the params and the function of a pull worker
    "client/worker/lease.py": 1,
    "client/worker/threads.py": 1,
    # around the params and the function of a recorded job
    "testing/recorder.py": 2,
    # around a thread's group of calls
    "stores/group_thread.py": 1,
    "stores/postgres/readers.py": 2,
    "stores/postgres/writer.py": 3,
    "stores/sqlite/executor.py": 5,
    "handlers/python/threads.py": 2,
    # around one reading in the thread behind top; Screen.run raises the error
    "cli/live/top.py": 1,
    # around a supervisor's child
    "handlers/process/supervisor.py": 1,
    # around the formatting of a log line
    "telemetry/log.py": 1,
}


def modules() -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path, ast.parse(path.read_text(encoding="utf-8"))


def test_no_constructor_takes_a_callback() -> None:
    found = [
        f"{path.relative_to(PACKAGE)}: {argument.arg}: {annotation}"
        for path, tree in modules()
        if PROCESS not in path.parents
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name == "__init__"
        for argument in (*node.args.args, *node.args.kwonlyargs)
        if _is_callback(argument, annotation := ast.unparse(argument.annotation) if argument.annotation else "")
    ]

    assert found == []


def _is_callback(argument: ast.arg, annotation: str) -> bool:
    is_factory = argument.arg.endswith("factory") or argument.arg.startswith("make_")
    return argument.arg.startswith("on_") or (
        "Callable" in annotation and argument.arg not in ALLOWED and not is_factory
    )


def test_no_attribute_of_another_object_is_a_callback() -> None:
    """No object assigns its own method to another object's attribute: `lanes.on_ready = self.check`."""
    found = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}"
        for path, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Attribute) and target.attr.startswith("on_")
    ]

    assert found == []


def test_broad_catches_are_only_at_known_boundaries() -> None:
    found: Counter[str] = Counter()
    for path, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.ExceptHandler) and _is_broad(node) and not _is_raised_again(node):
                found[str(path.relative_to(PACKAGE))] += 1

    assert found == BROAD


def _is_broad(node: ast.ExceptHandler) -> bool:
    return node.type is None or ast.unparse(node.type) in ("Exception", "BaseException")


def _is_raised_again(node: ast.ExceptHandler) -> bool:
    """Return whether a handler raises again after its cleanup."""
    return isinstance(node.body[-1], ast.Raise)


def test_no_module_is_long_and_the_composition_root_is_short() -> None:
    lines = {path: path.read_text(encoding="utf-8").count("\n") for path, _ in modules()}

    assert [str(path) for path, number in lines.items() if number > MAX_LINES] == []
    assert lines[PACKAGE / "main.py"] <= MAX_LINES_OF_MAIN
