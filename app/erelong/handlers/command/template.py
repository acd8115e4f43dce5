"""The command of a kind: words with placeholders, and patterns for the params that fill them."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from string import Formatter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from erelong.errors import Fault
from erelong.handlers.param_errors import MAX_FAULTS
from erelong.handlers.python.signature import InvalidKind
from erelong.model.faults import MAX_HINTS, REQUIRED, shown, unknown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

Word: TypeAlias = tuple[tuple[str, str | None], ...]

_ADVICE: Final = 'write a placeholder as "{name}", a brace as "{{" or "}}"'


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandLine:
    """A program and its arguments. Without patterns it accepts any object as params, and passes them by stdin only."""

    path: str
    words: tuple[Word, ...]
    patterns: Mapping[str, re.Pattern[str]] | None

    @property
    def schema(self) -> dict[str, Any]:
        if self.patterns is None:
            return {"type": "object"}
        properties = {
            name: {"type": "string", "pattern": f"^(?:{pattern.pattern})$"} for name, pattern in self.patterns.items()
        }
        return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}

    def fill(self, params: Mapping[str, str]) -> list[str]:
        """Return the words with params in their placeholders; the params must have no faults."""
        return ["".join(text + ("" if name is None else params[name]) for text, name in word) for word in self.words]

    def find_faults(self, params: object) -> list[Fault]:
        """List up to `MAX_FAULTS` faults of params."""
        if not isinstance(params, dict):
            return [Fault("", f"should be an object, not {shown(params)}")]
        return list(self._faults(params))[:MAX_FAULTS]

    def _faults(self, params: dict[str, Any]) -> Iterator[Fault]:
        if self.patterns is None:
            return
        for name, pattern in self.patterns.items():
            value = params.get(name)
            if name not in params:
                yield Fault.at([name], REQUIRED)
            elif not isinstance(value, str):
                yield Fault(f"/{name}", f"should be a string, not {shown(value)}")
            elif not pattern.fullmatch(value) or "\0" in value:
                yield Fault(f"/{name}", f'should match the pattern "{pattern.pattern}", not {shown(value)}')
        for number, name in enumerate(params.keys() - self.patterns.keys()):
            yield Fault.at([name], unknown(name, self.patterns, has_hint=number < MAX_HINTS))


def read_command_line(
    command: Sequence[str], patterns: Mapping[str, str] | None, environment: Mapping[str, str]
) -> CommandLine:
    """Read a declared command; find its program on the PATH in `environment`. Raise InvalidKind when it cannot run."""
    program, *_ = words = [_read_word(text) for text in command]
    if any(placeholder is not None for _, placeholder in program):
        raise InvalidKind(f'"{command[0]}" is the program, which params cannot fill: name a program')
    compiled = None if patterns is None else {name: _compiled(name, pattern) for name, pattern in patterns.items()}
    for name in [name for word in words for _, name in word if name is not None]:
        if name not in (compiled or {}):
            raise InvalidKind(f'"{{{name}}}" has no pattern: add {name} = "[a-z0-9]{{1,20}}" to its params; {_ADVICE}')
    path = _find_program("".join(text for text, _ in program), environment.get("PATH"))
    return CommandLine(path=path, words=tuple(words), patterns=compiled)


def _read_word(text: str) -> Word:
    if "\0" in text:
        raise InvalidKind("one of its words has a NUL character, which no argument can hold: remove it")
    try:
        parts = tuple(Formatter().parse(text))
    except ValueError as error:
        raise InvalidKind(f'"{text}" cannot be read: {error}; {_ADVICE}') from error
    for _, name, form, conversion in parts:
        if name is not None and (form or conversion or not name.isidentifier()):
            raise InvalidKind(f'"{text}" has a placeholder that is not a name; {_ADVICE}')
    return tuple((literal, name) for literal, name, _, _ in parts)


def _compiled(name: str, pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise InvalidKind(f'params.{name} = "{pattern}" is not a regular expression: {error}') from error


def _find_program(name: str, path: str | None) -> str:
    if os.path.dirname(name) and not os.path.isabs(name):
        raise InvalidKind(f'"{name}" is a relative path: write an absolute one, or the name of a program on the PATH')
    program = shutil.which(name, path=path)
    if program is None:
        where = "" if os.path.isabs(name) else f" on the PATH, {path or os.defpath}"
        raise InvalidKind(f'"{name}" is missing{where}, or not executable')
    return program
