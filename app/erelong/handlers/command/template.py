"""The command that a kind declares: its words, the places in them that params fill, and what may stand there."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from string import Formatter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from erelong.errors import Fault
from erelong.handlers.param_errors import MAX_FAULTS
from erelong.handlers.python.signature import Unfit
from erelong.model.faults import REQUIRED, shown, unknown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

Word: TypeAlias = tuple[tuple[str, str | None], ...]

_ADVICE: Final = 'a place is written "{name}", a brace "{{" or "}}"'


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandLine:
    """A program and its arguments. Without patterns any object is taken as params, which then go by stdin alone."""

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
        """The words as they are run; the params must have been found without faults."""
        return ["".join(text + ("" if place is None else params[place]) for text, place in word) for word in self.words]

    def find_faults(self, params: object) -> list[Fault]:
        """List what is wrong with params, at most 20 of it."""
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
        for name in params.keys() - self.patterns.keys():
            yield Fault.at([name], unknown(self.patterns))


def read_command_line(
    command: Sequence[str], patterns: Mapping[str, str] | None, environment: Mapping[str, str]
) -> CommandLine:
    """Read a declared command; raise Unfit when it cannot be run. Its program is looked for on its own PATH."""
    program, *_ = words = [_read_word(text) for text in command]
    if any(place is not None for _, place in program):
        raise Unfit(f'"{command[0]}" is the program and cannot be filled by params: name it outright')
    compiled = None if patterns is None else {name: _compiled(name, pattern) for name, pattern in patterns.items()}
    for place in [place for word in words for _, place in word if place is not None]:
        if place not in (compiled or {}):
            raise Unfit(f'"{{{place}}}" has no pattern: add {place} = "[a-z0-9]{{1,20}}" to its params; {_ADVICE}')
    name = "".join(text for text, _ in program)
    return CommandLine(path=_found(name, environment.get("PATH")), words=tuple(words), patterns=compiled)


def _read_word(text: str) -> Word:
    if "\0" in text:
        raise Unfit("a word of it has a NUL character, which no program can be given: leave it out")
    try:
        parts = tuple(Formatter().parse(text))
    except ValueError as error:
        raise Unfit(f'"{text}" cannot be read: {error}; {_ADVICE}') from error
    for _, place, form, conversion in parts:
        if place is not None and (form or conversion or not place.isidentifier()):
            raise Unfit(f'"{text}" has a place that is not a name; {_ADVICE}')
    return tuple((literal, place) for literal, place, _, _ in parts)


def _compiled(name: str, pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise Unfit(f'params.{name} = "{pattern}" is not a regular expression: {error}') from error


def _found(name: str, path: str | None) -> str:
    if os.path.dirname(name) and not os.path.isabs(name):
        raise Unfit(f'"{name}" is a relative path: write it from / on, or give a name that is found on the PATH')
    found = shutil.which(name, path=path)
    if found is None:
        where = "" if os.path.isabs(name) else f" on the PATH, {path or os.defpath}"
        raise Unfit(f'"{name}" is not there{where}, or not a program that may be run')
    return found
