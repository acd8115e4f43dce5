"""The sources of settings, a TOML file and the environment, with the source of each value."""

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
    """The values read so far, as a tree, and the problems met."""

    def __init__(self) -> None:
        self.tree: dict[str, Any] = {}
        self.problems: list[str] = []
        self._sources: dict[Key, str] = {}
        self._texts: dict[Key, str] = {}
        self._secrets: set[Key] = set()

    def read_file(self, path: Path, *, is_needed: bool = True) -> None:
        """Read a file of settings. If it is not needed it may be missing, but not unreadable."""
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
        self._sources = {(): str(path)} | {key: f"{path}:{line}" for key, line in _lines(text)}

    def read_environment(self, env: Mapping[str, str]) -> None:
        """Override the file with ERELONG_SECTION__KEY; ERELONG_SECTION__KEY_FILE names a file with the value."""
        names = [name for name in env if name.upper().startswith(PREFIX) and "__" in name]
        for name in sorted(names, key=lambda name: (name.count("__"), name)):
            key = tuple(name[len(PREFIX) :].lower().split("__"))
            if not all(key):
                self.problems.append(f"{name}: is not the name of a setting: write {PREFIX}SECTION__KEY")
            elif key[-1].endswith("_file"):
                self._set_from_file(name, (*key[:-1], key[-1].removesuffix("_file")), Path(env[name]))
            else:
                self._set(name, key, env[name])

    def use_texts(self, keys: Iterable[tuple[str | int, ...]]) -> bool:
        """Replace the parsed values of variables with their texts; return whether there was any among `keys`."""
        texts = {key: self._texts.pop(key) for key in self._texts.keys() & set(keys)}
        for key, text in texts.items():
            self._put(key, text)
        return bool(texts)

    def source_of(self, key: Key) -> str:
        """Return the variable, or the file and line, that set a setting or the nearest table around it."""
        ends = range(len(key), -1, -1)
        return next((self._sources[key[:end]] for end in ends if key[:end] in self._sources), "config")

    def value(self, key: Key) -> object:
        """Return the value of a setting as it was read; None if it was not set."""
        value: object = self.tree
        for part in key:
            value = value.get(part) if isinstance(value, dict) else None
        return value

    def is_secret(self, key: Key) -> bool:
        return any(key[: len(secret)] == secret for secret in self._secrets)

    def _set_from_file(self, name: str, key: Key, path: Path) -> None:
        try:
            text = path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            self.problems.append(f"{name}: {path} cannot be read: {getattr(error, 'strerror', None) or error}")
            return
        spelled = self._set(f"{name} ({path})", key, text)
        if spelled is not None:
            self._secrets.add(spelled)

    def _set(self, source: str, key: Key, text: str) -> Key | None:
        key = self._as_spelled(key)
        if key in self._texts:
            self.problems.append(f"{source}: {'.'.join(key)} is also set by {self._sources[key]}: remove one of them")
            return None
        if not self._put(key, _value(text)):
            self.problems.append(f"{source}: {'.'.join(key[:-1])} is a value, not a table: remove one of the two")
            return None
        self._sources = {known: where for known, where in self._sources.items() if known[: len(key)] != key}
        self._sources[key] = source
        for end in range(1, len(key)):
            self._sources.setdefault(key[:end], source)
        self._texts[key] = text
        return key

    def _as_spelled(self, key: Key) -> Key:
        """Spell a key as the tree does: names of queues and kinds are case-sensitive, variables are not."""
        spelled: Key = ()
        table: object = self.tree
        for part in key:
            matches = [name for name in table if name.lower() == part] if isinstance(table, dict) else []
            spelled = (*spelled, matches[0] if matches else part)
            table = table[matches[0]] if matches and isinstance(table, dict) else None
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
    """Yield the line of each key and of the first mention of each table, which tomllib does not report."""
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
    return "; each table and each name in it may appear only once: add your lines to the existing table"


def _line_of(error: tomllib.TOMLDecodeError, text: str) -> int:
    match = re.search(r"at line (\d+)", str(error))
    return int(match[1]) if match else text.count("\n") + 1
