"""Runs a command: its client, its output, and the exit code for every way it can end."""

from __future__ import annotations

import errno
import re
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
    Invalid,
    JobError,
    NoAnswer,
    NotFound,
    Refused,
    Unauthenticated,
)
from erelong.client.requests import Cut

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

_NOT_TEXT: Final = re.compile("should be (?:an? )?(?:valid )?(?:integer|number|boolean|true|object|list|array)")
_FIELD: Final = re.compile("/([a-z_]+): ")
_OPTIONS: Final = {"execute_at": "--at", "local_time": "--at", "delay": "--in", "shift": "--by", "labels": "--label"}
"""The options that have other names than the fields that they set."""

_ID: Final = re.compile("[0-9a-f]{26}")
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
        return report(error, typed=arguments)
    return code


def report(error: Exception, about: str = "", typed: Sequence[str] = ()) -> int:
    """Print an error; return its exit code. `about` is the id that it concerns, `typed` are the arguments."""
    text = _with_options(_text_of(error), typed) + (_remedy(error, about) or _remedy_for_text(error, typed))
    print(f"erelong: {about}{': ' if about else ''}{printable(text)}", file=sys.stderr)
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
    return text


def _with_options(text: str, typed: Sequence[str]) -> str:
    """Return the text of a service with the options that were typed in place of the fields that they set."""
    given = {word.partition("=")[0] for word in typed if word.startswith("--")}
    for field in _FIELD.findall(text):
        option = _OPTIONS.get(field, f"--{field.replace('_', '-')}")
        if option in given:
            text = text.replace(f"/{field}: ", f"{option}: ")
    if "--at" in given and "--zone" not in given:
        text = text.replace("has no offset: append", "has no offset: name its zone with --zone, or append")
    return text.replace("send on_conflict ", "give --on-conflict ")


def _remedy(error: Exception, about: str) -> str:
    """Return what to type next, where the text of the service or of the client speaks of HTTP alone."""
    if isinstance(error, Unauthenticated):
        return "; give a key with erelong login, ERELONG_KEY or --key-file"
    if isinstance(error, NoAnswer) and isinstance(error.__cause__, Cut):
        is_refused = isinstance(error.__cause__.__cause__, ConnectionRefusedError)
        return "; start it with erelong serve, or give its address with --url or ERELONG_URL" if is_refused else ""
    if isinstance(error, NotFound) and error.code == "job_not_found" and about:
        if about.startswith("~"):
            return "; --queue names another queue"
        return key_hint(about)
    return ""


def key_hint(id: str) -> str:
    """Return what to type if an id that nothing has is a job key."""
    return "" if _ID.fullmatch(id) else f"; if it is a job key, write '~{id}'"


def _remedy_for_text(error: Exception, typed: Sequence[str]) -> str:
    """Return how to write a param of another type, if text was typed where its kind wants a number, for example."""
    if isinstance(error, Invalid):
        for fault in error.errors:
            name = str(fault.get("pointer", "")).removeprefix("/params/").replace("/", ".")
            given = next((text for text in typed if text.startswith(f"{name}=")), None)
            if given is not None and _NOT_TEXT.match(str(fault.get("detail", ""))):
                return f"; {given} is text: write {name}:=… for JSON"
    return ""


def client_of(options: argparse.Namespace, *, retries: bool = True, has_screen: bool = False) -> Session:
    return Session(options, retries=retries, has_screen=has_screen)


def output_of(options: argparse.Namespace) -> Output:
    return Output(is_json=options.json, fields=options.fields, is_quiet=options.quiet, is_utc=options.utc)
