"""Where settings come from: a TOML file and the environment, and the place at which each value was given."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

Key: TypeAlias = tuple[str, ...]

PREFIX: Final = "ERELONG_"

_PART: Final = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*')"""
_DOTTED: Final = rf"{_PART}(?:\s*\.\s*{_PART})*"
_HEADER = re.compile(rf"\s*\[\[?\s*({_DOTTED})\s*\]\]?\s*(?:#.*)?")
_ASSIGNMENT = re.compile(rf"\s*({_DOTTED})\s*=")


class Sources:
    """What has been given so far: a tree of values, and what was wrong in reading it."""

    def __init__(self) -> None:
        self.tree: dict[str, Any] = {}
        self.problems: list[str] = []
        self._places: dict[Key, str] = {}
        self._texts: dict[Key, str] = {}
        self._secrets: set[Key] = set()

    def read_file(self, path: Path, *, is_needed: bool = True) -> None:
        """Read a file of settings. One that is not needed may be missing; it may not be there and unreadable."""
        try:
            text = path.read_text(encoding="utf-8-sig")
        except OSError as error:
            if is_needed or not isinstance(error, FileNotFoundError):
                self.problems.append(f"{path}: cannot be read: {error.strerror or error}")
            return
        except UnicodeDecodeError as error:
            self.problems.append(f"{path}: is not UTF-8: {error.reason} at byte {error.start}")
            return
        try:
            self.tree = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            self.problems.append(f"{path}:{_line_of(error, text)}: is not TOML: {error}{_remedy(error)}")
            return
        self._places = {(): str(path)} | {key: f"{path}:{line}" for key, line in _lines(text)}

    def read_environment(self, env: Mapping[str, str]) -> None:
        """Lay ERELONG_SECTION__KEY over the file; ERELONG_SECTION__KEY_FILE names a file with the value."""
        names = [name for name in env if name.upper().startswith(PREFIX) and "__" in name]
        for name in sorted(names, key=lambda name: (name.count("__"), name)):
            key = tuple(name[len(PREFIX) :].lower().split("__"))
            if not all(key):
                self.problems.append(f"{name}: is not the name of a setting: write {PREFIX}SECTION__KEY")
            elif key[-1].endswith("_file"):
                self._take_file(name, (*key[:-1], key[-1].removesuffix("_file")), Path(env[name]))
            else:
                self._take(name, key, env[name])

    def take_as_text(self, keys: Iterable[tuple[str | int, ...]]) -> bool:
        """Give those of the keys that the environment set the text that stands there; tell whether any was."""
        texts = {key: self._texts.pop(key) for key in self._texts.keys() & set(keys)}
        for key, text in texts.items():
            self._put(key, text)
        return bool(texts)

    def place(self, key: Key) -> str:
        """The variable, or the file and line, that gave a setting or the nearest table around it."""
        return next((self._places[key[:end]] for end in range(len(key), -1, -1) if key[:end] in self._places), "config")

    def value(self, key: Key) -> object:
        """What was given for a setting, as it was given; None when nothing was."""
        value: object = self.tree
        for part in key:
            value = value.get(part) if isinstance(value, dict) else None
        return value

    def is_secret(self, key: Key) -> bool:
        return any(key[: len(secret)] == secret for secret in self._secrets)

    def _take_file(self, name: str, key: Key, path: Path) -> None:
        try:
            text = path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            self.problems.append(f"{name}: {path} cannot be read: {getattr(error, 'strerror', None) or error}")
            return
        taken = self._take(f"{name} ({path})", key, text)
        if taken is not None:
            self._secrets.add(taken)

    def _take(self, place: str, key: Key, text: str) -> Key | None:
        key = self._as_spelled(key)
        if key in self._texts:
            self.problems.append(f"{place}: {'.'.join(key)} is given by {self._places[key]} too: keep one of them")
            return None
        if not self._put(key, _value(text)):
            self.problems.append(f"{place}: {'.'.join(key[:-1])} is a value, not a table: nothing can be set inside it")
            return None
        self._places = {known: where for known, where in self._places.items() if known[: len(key)] != key}
        self._places[key] = place
        for end in range(1, len(key)):
            self._places.setdefault(key[:end], place)
        self._texts[key] = text
        return key

    def _as_spelled(self, key: Key) -> Key:
        """Spell a key as the tree does; variables have one case, and names of queues and kinds two."""
        spelled: Key = ()
        table: object = self.tree
        for part in key:
            same = [name for name in table if name.lower() == part] if isinstance(table, dict) else []
            spelled = (*spelled, same[0] if same else part)
            table = table[same[0]] if same and isinstance(table, dict) else None
        return spelled

    def _put(self, key: Key, value: object) -> bool:
        table: Any = self.tree
        for part in key[:-1]:
            table = table.setdefault(part, {})
            if not isinstance(table, dict):
                return False
        table[key[-1]] = value
        return True


def _value(text: str) -> object:
    try:
        parsed = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return parsed["value"] if len(parsed) == 1 else text


def _lines(text: str) -> Iterator[tuple[Key, int]]:
    """Find the line of each key and table; tomllib keeps none. The first that mentions a table counts for it."""
    table: Key = ()
    seen: set[Key] = set()
    open_quote = ""
    for number, line in enumerate(text.split("\n"), 1):
        if open_quote:
            open_quote = "" if open_quote in line else open_quote
            continue
        open_quote = next((quote for quote in ('"""', "'''") if line.count(quote) % 2), "")
        if match := _HEADER.fullmatch(line.rstrip("\r")):
            key = table = _parts(match[1])
        elif match := _ASSIGNMENT.match(line):
            key = table + _parts(match[1])
        else:
            continue
        for end in range(1, len(key) + 1):
            if key[:end] not in seen:
                seen.add(key[:end])
                yield key[:end], number


def _parts(dotted: str) -> Key:
    return tuple(part.strip("\"'") for part in re.findall(_PART, dotted))


def _remedy(error: tomllib.TOMLDecodeError) -> str:
    if not str(error).startswith(("Cannot declare", "Cannot overwrite")):
        return ""
    return "; a table may stand there only once, and each name in it: put what you add under the one that is there"


def _line_of(error: tomllib.TOMLDecodeError, text: str) -> int:
    match = re.search(r"at line (\d+)", str(error))
    return int(match[1]) if match else text.count("\n") + 1
