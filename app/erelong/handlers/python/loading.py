"""Imports the functions that kinds name, and turns their exceptions into failures."""

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
from erelong.handlers.python.signature import InvalidKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

MAX_TRACE: Final = 16_384
HANDLERS: Final = "erelong.handlers"


def import_function(path: str) -> Callable[..., Any]:
    """Import the function `path` ("module:function"); raise InvalidKind when it is missing or not a function."""
    module_name, _, attribute = path.partition(":")
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and f"{module_name}.".startswith(f"{error.name}."):
            raise InvalidKind(f'no module "{error.name}"; searched in {", ".join(map(repr, sys.path))}') from None
        where = traceback.extract_tb(error.__traceback__)[-1]
        raise InvalidKind(
            f'importing "{module_name}" failed: {type(error).__name__}: {error} ({where.filename}:{where.lineno})'
        ) from error
    try:
        function = attrgetter(attribute)(module)
    except AttributeError:
        source = getattr(module, "__file__", None) or "built in"
        raise InvalidKind(f'module "{module_name}" ({source}) has no "{attribute}"') from None
    function = getattr(function, "erelong_function", function)  # decorated with erelong.kind
    _refuse_no_function(function, attribute)
    return function  # type: ignore[no-any-return]  # checked above as far as it can be


def find_shadow(path: str, folders: Iterable[Path]) -> tuple[str, str] | None:
    """Return the file that the module of `path` was imported from, and the file in `folders` that it shadows.

    Return None if it shadows no file.
    """
    name = path.partition(":")[0]
    parts = name.split(".")
    files = [file for folder in folders for file in (folder.joinpath(*parts, "__init__.py"), _source(folder, parts))]
    expected = next((file.resolve() for file in files if file.is_file()), None)
    module = sys.modules.get(name) or sys.modules.get(parts[0])
    if expected is None or module is None:
        return None
    imported = getattr(module, "__file__", None)
    is_expected = imported and module.__name__ == name and Path(imported).resolve().parent == expected.parent
    return None if is_expected else (imported or "the standard library", str(expected))


def _source(folder: Path, parts: Sequence[str]) -> Path:
    return folder.joinpath(*parts[:-1], f"{parts[-1]}.py")


def failure_of(error: BaseException) -> AttemptFailed:
    """Return the failure of an attempt whose function raised `error`, with the traceback as its output."""
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
    """Return the traceback without the frames of erelong."""
    trace = error.__traceback__
    while trace is not None and str(trace.tb_frame.f_globals.get("__package__")).startswith(HANDLERS):
        trace = trace.tb_next
    try:
        return "".join(traceback.format_exception(type(error), error, trace))[-MAX_TRACE:]
    except Exception as broken:  # noqa: BLE001 - a user's exception may fail in __str__
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
        raise InvalidKind(
            f'"{name}" is a {"class" if inspect.isclass(value) else type(value).__name__}, not a function'
        )
    if inspect.isgeneratorfunction(value) or inspect.isasyncgenfunction(value):
        raise InvalidKind(f'"{name}" is a generator, which would never run: return instead of yield')
