"""Cron expressions: how they are written, described, and turned into local times."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from cronsim import CronSim, CronSimError

from erelong.model.faults import shown

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_CRON: Final = 200

NICKNAMES: Final = {
    "@HOURLY": "0 * * * *",
    "@DAILY": "0 0 * * *",
    "@WEEKLY": "0 0 * * 0",
    "@MONTHLY": "0 0 1 * *",
    "@YEARLY": "0 0 1 1 *",
}
NEVER: Final = "matches no time in the next 50 years: check the day of month against the month, the day of week and gap"

_OTHER_NICKNAMES: Final = {
    "@MIDNIGHT": "write @daily",
    "@ANNUALLY": "write @yearly",
    "@REBOOT": "a schedule has only times; submit a job when your program starts",
    "@EVERY": "set every in place of cron",
}


class _Field(NamedTuple):
    name: str
    least: int
    most: int
    names: tuple[str, ...] = ()
    first_name: int = 0

    @property
    def wish(self) -> str:
        names = f", or {self.names[0]} to {self.names[-1]}" if self.names else ""
        return f"write {self.least} to {self.most}{names}"


_MONTH_NAMES: Final = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_DAY_NAMES: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_DAY_OF_MONTH: Final = _Field("day of month", 1, 31)
_DAY_OF_WEEK: Final = _Field("day of week", 0, 7, _DAY_NAMES)
_FIELDS: Final = (
    _Field("second", 0, 59),
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _DAY_OF_MONTH,
    _Field("month", 1, 12, _MONTH_NAMES, 1),
    _DAY_OF_WEEK,
)
_MINUTE: Final = 1
_HOUR: Final = 2

_ITEM = re.compile(r"(?:\*|([0-9A-Z]+)(?:-([0-9A-Z]+))?)(?:/([0-9]+))?")
_STEP = re.compile(r"\*/[0-9]+")
_EVEN: Final = (("second", "minute"), ("minute", "hour"))  # units of the first fields, and what has 60 of them
_WHOLE = re.compile(r"[0-9]{1,9}")
_YEAR = re.compile(r"(?:19|20|21)[0-9]{2}(?:[-,/*].*)?")
_ZONE = re.compile(r"(?:CRON_)?TZ=(\S*)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Cron:
    """A cron expression accepted by `parse_cron`, with its six fields: seconds first, in upper case."""

    text: str
    fields: tuple[str, ...]

    @property
    def is_steady(self) -> bool:
        """Whether it repeats within the hour or the day, rather than at times of day."""
        return self.fields[_MINUTE].startswith("*") or self.fields[_HOUR].startswith("*")

    def after(self, local: datetime) -> Iterator[datetime]:
        """Return the local times after this one, in order, up to the year 9999."""
        times = self._simulate(local)
        while True:
            try:
                yield next(times)
            except (StopIteration, OverflowError):
                return

    def describe(self) -> str:
        """Describe it in English, such as "At 09:00 on Monday through Friday"."""
        text = self._simulate(datetime(1970, 1, 1)).explain()
        for field, (unit, whole) in zip(self.fields, _EVEN, strict=False):
            step = int(field[2:]) if _STEP.fullmatch(field) else 1
            if step > 1 and 60 % step == 0:  # "every 20th minute of every hour" could be once an hour
                text = re.sub(
                    rf"^Every \w+ {unit}( of every {whole})?(?= from | on | in |$)", f"Every {step} {unit}s", text
                )
        return text

    def _simulate(self, local: datetime) -> CronSim:
        return CronSim(" ".join(self.fields), local)


def parse_cron(text: str) -> Cron:
    """Parse a cron expression; raise ValueError, saying what to write instead, if it is not supported."""
    fields = _split(text)
    for field, part in zip(_FIELDS, fields, strict=True):
        for item in part.split(","):
            fault = _item_fault(field, item)
            if fault:
                raise ValueError(f"{shown(item)} in {field.name}: {fault}")
    plain = (
        ",".join(_plain(field, item) for item in part.split(",")) for field, part in zip(_FIELDS, fields, strict=True)
    )
    cron = Cron(text, tuple(plain))
    try:
        cron.describe()
    except CronSimError:  # it still rejects a day that none of the months has
        raise ValueError(f"{shown(text)} {NEVER}") from None
    return cron


def _split(text: str) -> list[str]:
    """Return the six fields in upper case."""
    if not text.isascii() or len(text) > MAX_CRON:
        raise ValueError(f"{shown(text)} is not a cron expression: write at most {MAX_CRON} ASCII characters")
    zone = _ZONE.match(text.strip())
    if zone:
        raise ValueError(f"{shown(zone[0])} before the fields: remove it and set zone to {shown(zone[1])}")
    fields = text.upper().split()
    if fields and fields[0].startswith("@"):
        if len(fields) > 1 or fields[0] not in NICKNAMES:
            hint = _OTHER_NICKNAMES.get(fields[0], f"write {', '.join(NICKNAMES).lower()} or five fields")
            raise ValueError(f"{shown(text)} is not supported: {hint}")
        fields = NICKNAMES[fields[0]].split()
    if len(fields) == 7 or (len(fields) == 6 and _YEAR.fullmatch(fields[5])):
        raise ValueError(f"{shown(text)} has a year: remove it, and bound the schedule with starts_at and ends_at")
    if len(fields) == 5:
        fields = ["0", *fields]
    if len(fields) != 6:
        raise ValueError(
            f"{shown(text)} has {len(fields)} fields: write 5 (minute, hour, day of month, month, day of week), "
            "or 6 with seconds first"
        )
    return fields


def _item_fault(field: _Field, item: str) -> str | None:
    """Return what to write instead of one item of a list, or None if it is valid."""
    if _is_special(field, item):
        return None
    match = _ITEM.fullmatch(item)
    ends = _ends(field, match) if match else None
    if match is None or ends is None:
        return _foreign(field, item) or field.wish
    if ends[0] > ends[1]:
        return f"a range cannot wrap around; write {_unwound(field, *ends)}"
    most = field.most - field.least + 1
    if match[3] is not None and not 1 <= int(match[3][:9]) <= most:
        return f"a step is from 1 to {most}; for a longer period set every in place of cron"
    return None


def _ends(field: _Field, match: re.Match[str]) -> tuple[int, int] | None:
    """Return the first and the last value of an item without its step, or None if the field has no such values."""
    if match[1] is None:
        return field.least, field.most
    first = _number(field, match[1])
    last = first if match[2] is None else _number(field, match[2])
    return None if first is None or last is None else (first, last)


def _is_special(field: _Field, item: str) -> bool:
    if field is _DAY_OF_MONTH:
        return item in ("L", "LW")
    if field is _DAY_OF_WEEK:
        day, mark, nth = item.partition("#")
        if mark:
            return _number(field, day) is not None and nth in ("1", "2", "3", "4", "5")
        return len(item) == 2 and item[1] == "L" and _number(field, item[0]) is not None
    return False


def _foreign(field: _Field, item: str) -> str | None:
    """Return what to write instead of the syntax of other cron implementations, or None if it is unknown."""
    if item == "?":
        return "write *"
    if re.match(r"H(?![A-Z])", item) or "~" in item:
        return "write a number, and set spread to keep schedules apart"
    if field is _DAY_OF_MONTH:
        if item.endswith("W") and _number(field, item[:-1]) is not None:
            return f"the nearest weekday is not supported; write {item[:-1]}, or LW for the last weekday of the month"
        if item.startswith("L"):
            return "write L for the last day of the month, or LW for its last weekday"
    if field is _DAY_OF_WEEK:
        if item in tuple(f"{name}L" for name in _DAY_NAMES):
            return f"write {_DAY_NAMES.index(item[:3])}L"
        if item.endswith("L"):
            return "write a day before the L: 5L is the last Friday of the month"
        if "#" in item:
            return "write one day and a number from 1 to 5: FRI#2 is the second Friday of the month"
    return None


def _number(field: _Field, text: str) -> int | None:
    if text in field.names:
        return field.names.index(text) + field.first_name
    if not _WHOLE.fullmatch(text) or not field.least <= int(text) <= field.most:
        return None
    return int(text)


def _unwound(field: _Field, first: int, last: int) -> str:
    """Write a range that wraps around as two."""
    least = 1 if field is _DAY_OF_WEEK else field.least  # 7 is Sunday too
    ranges = [(first, field.most), (least, last)]
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in ranges if low <= high)


def _plain(field: _Field, item: str) -> str:
    """Write a range of one value as that value, without its step: cronsim would count on to the end of the field."""
    match = _ITEM.fullmatch(item)
    ends = _ends(field, match) if match and match[2] is not None else None
    return str(ends[0]) if ends and ends[0] == ends[1] else item
