"""Time-zone rules: the version in use, and the zones by their IANA names."""

from __future__ import annotations

import difflib
import json
import os
import re
import struct
import sysconfig
from datetime import UTC, tzinfo
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

UNKNOWN_VERSION: Final = "unknown"

_NAME = re.compile(r"[A-Z][A-Za-z0-9_+-]*(?:/[A-Za-z0-9_+-]+)*")
_VERSION = re.compile(r"(?:# version )?([0-9]{4}[a-z]+)\s*")
_VERSION_FILES: Final = ("tzdata.zi", "+VERSION")
# zoneinfo raises any of these for a file that is missing, truncated, or not a zone.
_UNREADABLE: Final = (OSError, ValueError, IndexError, EOFError, AssertionError, struct.error)
_MAX_SHOWN: Final = 60


class Zones:
    """The zones of one version of the rules, each read once. `load_zones` returns another object for newer rules."""

    def __init__(self, folders: Sequence[Path]) -> None:
        """Take the folders to search, preferred first; `version` is that of the first."""
        self.version = (_version(folders[0]) if folders else "") or UNKNOWN_VERSION
        self._folders = tuple(folders)
        self._zones: dict[str, tzinfo] = {"UTC": UTC}  # needs no rules
        self._spellings: dict[str, str] = {}

    def find(self, name: str) -> tzinfo:
        """Return a zone by name; raise ValueError, suggesting the closest name, if there is none."""
        zone = self._zones.get(name)
        if zone is None:
            zone = self._zones[name] = self._read(name)
        return zone

    def _read(self, name: str) -> tzinfo:
        if _is_name(name):
            for folder in self._folders:
                try:
                    return ZoneInfo.from_file(_Rules((folder / name).read_bytes()), key=name)
                except _UNREADABLE:
                    continue
        shown = json.dumps(name if len(name) <= _MAX_SHOWN else f"{name[: _MAX_SHOWN - 3]}...")
        raise ValueError(f"no time zone {shown}; {self._hint(name)}")

    def _hint(self, name: str) -> str:
        """Return what to send instead: the closest name, also for a city without its continent."""
        if not self._spellings:
            self._spellings = self._list_spellings()
        wanted = name[:_MAX_SHOWN].strip().replace(" ", "_").casefold()
        near = [spelling for spelling in self._spellings if spelling[:1] == wanted[:1]]  # comparing all is slow
        close = [wanted] if wanted in near else difflib.get_close_matches(wanted, near, n=1, cutoff=0.8)
        if not close:
            return 'send a name of the IANA database, such as "Europe/Berlin"'
        return f"the closest is {json.dumps(self._spellings[close[0]])}"

    def _list_spellings(self) -> dict[str, str]:
        names = {name for folder in self._folders for name in _list_names(str(folder))}
        spellings: dict[str, str] = {}
        for name in sorted(names, key=lambda name: (name.count("/"), name)):
            spellings.setdefault(name.rpartition("/")[2].casefold(), name)
            spellings.setdefault(name.casefold(), name)
        return spellings


class ZoneSource:
    """The zones in use. Whoever resolves a local time reads `current`; `renew` replaces it by newer rules."""

    def __init__(self) -> None:
        self.current = self.load()

    def load(self) -> Zones:
        """Return the newest rules."""
        return load_zones(os.environ)

    def renew(self) -> bool:
        """Read the version of the rules again; return whether they may have changed."""
        newest = self.load()
        if newest.version == self.current.version != UNKNOWN_VERSION:
            return False
        self.current = newest
        return True


def load_zones(environ: Mapping[str, str]) -> Zones:
    """Return the rules of PYTHONTZPATH if it is set, otherwise those of the system or of tzdata, whichever are newer.

    A zone that the newer ones lack is read from the others: Debian keeps old names in a package of its own.
    """
    chosen = environ.get("PYTHONTZPATH")
    if chosen is not None:
        return Zones(_existing(chosen.split(os.pathsep)) or _package())
    system = _existing((sysconfig.get_config_var("TZPATH") or "").split(os.pathsep))
    return Zones(by_version([*system, *_package()]))


def by_version(folders: Iterable[Path]) -> list[Path]:
    """Sort folders of rules, the newest first; those of the same version keep their order."""
    return sorted(folders, key=_version, reverse=True)


class _Rules(BytesIO):
    """Raises at the end of the file: zoneinfo never returns from a file without its closing line."""

    def read(self, size: int | None = -1, /) -> bytes:
        read = super().read(size)
        if size and not read:
            raise EOFError("the rules are cut short")
        return read


def _is_name(text: str) -> bool:
    """Return whether a text may name a zone. The folders posix and right and the file localtime are no zones."""
    return _NAME.fullmatch(text) is not None


def _list_names(folder: str, prefix: str = "") -> Iterator[str]:
    """Return the names of the zones in a folder. A walk with pathlib would block the event loop."""
    try:
        entries = [*os.scandir(folder)]
    except OSError:  # it has been removed
        return
    for entry in entries:
        name = prefix + entry.name
        if _is_name(name) and entry.is_dir():
            yield from _list_names(entry.path, f"{name}/")
        elif _is_name(name):
            yield name


def _existing(names: Iterable[str]) -> list[Path]:
    return [folder for name in names if os.path.isabs(name) and (folder := Path(name)).is_dir()]


def _package() -> list[Path]:
    spec = find_spec("tzdata")
    return _existing(str(Path(place, "zoneinfo")) for place in (spec and spec.submodule_search_locations) or ())


def _version(folder: Path) -> str:
    """Return the version of the rules in a folder, or "", which is less than any other, if no file states it."""
    for name in _VERSION_FILES:
        try:
            with (folder / name).open(encoding="ascii", errors="replace") as file:
                match = _VERSION.fullmatch(file.readline(100))
        except OSError:
            continue
        if match:
            return match[1]
    return ""
