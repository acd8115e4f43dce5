"""Runs a command: its client, its output, and the exit code for every way it can end."""

from __future__ import annotations

import errno
import sys
from typing import TYPE_CHECKING, Final

from erelong.cli.console.output import Output, printable
from erelong.cli.console.session import Session
from erelong.client.errors import (
    Busy,
    Changed,
    Conflict,
    ErelongError,
    Forbidden,
    JobError,
    NoAnswer,
    NotFound,
    Refused,
    Unauthenticated,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

REFUSED: Final = 1
USAGE: Final = 2
JOB_FAILED: Final = 3
NO_ACCESS: Final = 4
NOT_FOUND: Final = 5
CONFLICT: Final = 6
UNAVAILABLE: Final = 69
TIMED_OUT: Final = 124
INTERRUPTED: Final = 130

_OF_ARGUMENTS: Final = (errno.ENOENT, errno.EACCES, errno.EISDIR, errno.ENOTDIR, errno.EEXIST)


class Usage(Exception):
    """The arguments do not go together."""


def run(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> int:
    options = parser.parse_intermixed_args(arguments)
    options.typed = [*arguments]
    try:
        code: int = options.call(options)
    except BrokenPipeError:
        raise
    except TimeoutError as error:
        return report(error)
    except (Usage, ValueError) as error:
        print(f"{parser.prog}: {printable(str(error))}", file=sys.stderr)
        return USAGE
    except OSError as error:
        if error.errno not in _OF_ARGUMENTS:
            raise
        about = f"{error.filename}: " if error.filename else ""
        print(f"{parser.prog}: {about}{error.strerror}", file=sys.stderr)
        return USAGE
    except ErelongError as error:
        return report(error)
    return code


def report(error: Exception, about: str = "") -> int:
    """Print an error; return its exit code."""
    print(f"erelong: {about}{': ' if about else ''}{printable(_text_of(error))}", file=sys.stderr)
    return exit_code(error)


def exit_code(error: Exception) -> int:
    codes: list[tuple[tuple[type[Exception], ...], int]] = [
        ((TimeoutError,), TIMED_OUT),
        ((NoAnswer,), UNAVAILABLE),
        ((Unauthenticated, Forbidden), NO_ACCESS),
        ((NotFound,), NOT_FOUND),
        ((Conflict, Changed), CONFLICT),
        ((JobError,), JOB_FAILED),
    ]
    if isinstance(error, Busy):
        return UNAVAILABLE if error.status != 429 else REFUSED
    return next((code for kinds, code in codes if isinstance(error, kinds)), REFUSED)


def _text_of(error: Exception) -> str:
    """Return the text of an error: for a refusal its detail, the faults that it does not name, and its code."""
    if not isinstance(error, Refused):
        return str(error)
    faults = [f"{fault.get('pointer', '')}: {fault.get('detail', '')}" for fault in error.errors]
    more = [fault for fault in faults if fault not in error.detail]
    text = "; ".join([error.detail, *more[:5]]) + (f" ({error.code})" if error.code else "")
    if error.maybe_done:
        text += "; the change may have been made: check before you repeat it"
    if isinstance(error, Unauthenticated):
        text += "; give a key with erelong login, ERELONG_KEY or --key-file"
    return text


def client_of(options: argparse.Namespace, *, retries: bool = True) -> Session:
    return Session(options, retries=retries)


def output_of(options: argparse.Namespace) -> Output:
    return Output(is_json=options.json, fields=options.fields, is_quiet=options.quiet, is_utc=options.utc)
