"""The functions that kinds name: found by their path, looked at before they are called, and what they raise."""

from __future__ import annotations

import importlib
import inspect
import sys
import traceback
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from erelong.attempt import RetryAfter
from erelong.clock.instants import parse_duration
from erelong.handlers.base import AttemptFailed
from erelong.handlers.python.signature import Unfit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

MAX_TRACE: Final = 16_384
HANDLERS: Final = "erelong.handlers"


def import_function(path: str) -> Callable[..., Any]:
    """Import the function `path` ("module:function"); raise Unfit when there is none."""
    module_name, _, attribute = path.partition(":")
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and f"{module_name}.".startswith(f"{error.name}."):
            raise Unfit(f'no module "{error.name}"; searched in {", ".join(map(repr, sys.path))}') from None
        where = traceback.extract_tb(error.__traceback__)[-1]
        raise Unfit(
            f'importing "{module_name}" failed: {type(error).__name__}: {error} ({where.filename}:{where.lineno})'
        ) from error
    try:
        function = attrgetter(attribute)(module)
    except AttributeError:
        source = getattr(module, "__file__", None) or "built in"
        raise Unfit(f'module "{module_name}" ({source}) has no "{attribute}"') from None
    _refuse_no_function(function, attribute)
    return function  # type: ignore[no-any-return]  # checked above as far as it can be


def find_shadow(path: str, folders: Iterable[Path]) -> tuple[str, str] | None:
    """Return where the module of `path` was imported from, and the file in these folders whose place that took.

    None if there is no such file, or it is the one that was imported.
    """
    name = path.partition(":")[0]
    parts = name.split(".")
    files = [file for folder in folders for file in (folder.joinpath(*parts, "__init__.py"), _source(folder, parts))]
    expected = next((file.resolve() for file in files if file.is_file()), None)
    found = sys.modules.get(name) or sys.modules.get(parts[0])
    if expected is None or found is None:
        return None
    imported = getattr(found, "__file__", None)
    is_it = imported and found.__name__ == name and Path(imported).resolve().parent == expected.parent
    return None if is_it else (imported or "the standard library", str(expected))


def _source(folder: Path, parts: Sequence[str]) -> Path:
    return folder.joinpath(*parts[:-1], f"{parts[-1]}.py")


def failure_of(error: BaseException) -> AttemptFailed:
    """What the attempt fails with whose function raised this; where it was raised goes along."""
    if isinstance(error, RetryAfter):
        return _retry_after(error)
    text = text_of(error)
    message = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return AttemptFailed("exception", message, output=trace_of(error))


def _retry_after(error: RetryAfter) -> AttemptFailed:
    try:
        return AttemptFailed("exception", text_of(error), backoff=parse_duration(error.delay))
    except ValueError as reason:
        return AttemptFailed("exception", f"RetryAfter: {reason}")


def trace_of(error: BaseException) -> str:
    """The traceback from the function on, without the frames of whoever called it here."""
    trace = error.__traceback__
    while trace is not None and str(trace.tb_frame.f_globals.get("__package__")).startswith(HANDLERS):
        trace = trace.tb_next
    try:
        return "".join(traceback.format_exception(type(error), error, trace))[-MAX_TRACE:]
    except Exception as broken:  # noqa: BLE001 - what a function raises may not even have a text
        return f"(the traceback could not be made: {type(broken).__name__})\n"


def text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as broken:  # noqa: BLE001 - as above
        return f"(its text could not be made: {type(broken).__name__})"


def is_coroutine_function(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def _refuse_no_function(value: object, name: str) -> None:
    if not callable(value) or inspect.isclass(value):
        raise Unfit(f'"{name}" is a {"class" if inspect.isclass(value) else type(value).__name__}, not a function')
    if inspect.isgeneratorfunction(value) or inspect.isasyncgenfunction(value):
        raise Unfit(f'"{name}" is a generator, which nothing would run: return instead of yield')
