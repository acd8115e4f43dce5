"""The screen of `top` as lines of text, made of the last answers, the keys pressed, and its size."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from erelong.cli.console.attention import issues_of
from erelong.cli.console.blocks import columns
from erelong.cli.console.output import duration, printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

BOLD: Final = "1"
DIM: Final = "2"
RED: Final = "31"
YELLOW: Final = "33"
REVERSED: Final = "7"
ORDERS: Final = ("due", "late", "failed", "name")
MIN_WIDTH: Final = 20
TALL: Final = 30  # lines from which on the chart has two

_QUEUES: Final = {"queue": 16, "state": 7, "due": 10, "waiting": 11, "running": 10, "late p99": 9, "failed": 8}
_DROPPED: Final = ("failed", "running", "waiting", "late p99", "state")
"""The columns that a narrow screen does not show, in this order."""

_KEYS: Final = "p pause/resume  Enter jobs  s sort: {order}  j k move  q quit"
_KEYS_OF_JOBS: Final = "Esc back  q quit"


class Line(NamedTuple):
    """A line and its style."""

    text: str
    style: str = ""


class Snapshot(NamedTuple):
    """What the service said last, in reading `number`; `error` is why it says nothing now, `since` from when on."""

    stats: Mapping[str, Any] | None = None
    due: Mapping[str, Any] | None = None
    queues: Sequence[Mapping[str, Any]] = ()
    failures: Sequence[Mapping[str, Any]] = ()
    jobs: Sequence[Mapping[str, Any]] = ()
    error: str = ""
    since: datetime | None = None
    number: int = 0


class View(NamedTuple):
    """What somebody has chosen to see. `opened` is the queue whose jobs are shown.

    `selected` is a queue by its name, since rows move while somebody looks for a key.
    """

    url: str
    order: str = "due"
    selected: str = ""
    opened: str | None = None
    message: str = ""
    is_utc: bool = False


def frame(found: Snapshot, view: View, width: int, height: int) -> list[Line]:
    """Return at most `height` lines of at most `width` characters."""
    width = max(width, MIN_WIDTH)
    head = [*_head(found, view, width)]
    keys = _KEYS_OF_JOBS if view.opened else _KEYS.format(order=view.order)
    foot = [Line(view.message, BOLD) if view.message else Line(keys, DIM)]
    room = max(height - len(head) - len(foot), 0)
    body = [*_jobs(found, view, room)] if view.opened else _overview(found, view, width, room)
    lines = [*head[: max(height - 1, 1)], *body[:room]]
    lines += [Line("")] * (height - len(lines) - 1)
    return [line._replace(text=printable(line.text)[:width]) for line in [*lines, *foot][:height]]


def styled(lines: Sequence[Line], *, has_colours: bool) -> list[str]:
    return [f"\x1b[{line.style}m{line.text}\x1b[0m" if has_colours and line.style else line.text for line in lines]


# the head


def _head(found: Snapshot, view: View, width: int) -> Iterator[Line]:
    stats = found.stats
    if stats is None:
        yield Line(f"erelong  {view.url}", BOLD)
        yield Line(found.error or "connecting …", RED if found.error else DIM)
        return
    clock = f"{_local(stats['now'], view):%H:%M:%S}"
    state = f"{clock}  live" if not found.error else f"no response since {found.since:%H:%M:%S}: {found.error}"
    title = f"erelong {stats['version']}  {view.url}"
    gap = width - len(title) - len(state)
    yield Line(title + " " * gap + state if gap > 1 else f"{title}  {state}", RED if found.error else BOLD)
    yield from (Line(text) for text in _wrapped(_tiles(stats), width))
    for issue in issues_of(stats, found.queues, ())[:3]:
        yield Line(f"! {issue}", YELLOW)


def _tiles(stats: Mapping[str, Any]) -> list[str]:
    jobs, rates, late = stats["jobs"], stats.get("rates") or {}, (stats.get("late") or {}).get("p99")
    workers = stats.get("workers") or {}
    return [
        f"waiting {jobs['scheduled']:,}",
        f"due {jobs['due']:,}",
        f"running {jobs['running']:,}" + (f" of {workers['of']:,}" if "of" in workers else ""),
        f"failed {jobs['failed']:,}",
        f"{rates.get('succeeded') or 0:,.0f}/s done",
        f"late p99 {_milliseconds(late)}",
    ]


def _wrapped(parts: Sequence[str], width: int) -> Iterator[str]:
    """Return parts as few lines, none of them cut where it fits."""
    line = ""
    for part in parts:
        if line and len(line) + 3 + len(part) > width:
            yield line
            line = ""
        line = f"{line} │ {part}" if line else part
    yield line


# the overview


def _overview(found: Snapshot, view: View, width: int, room: int) -> list[Line]:
    """Return due times, queues and failures; with little room, queues before due times before failures."""
    due = [*_due(found.due, view, width, 2 if room >= TALL else 1)] if found.due and room >= 12 else []
    failures = [*_failures(found, view)] if room - len(due) >= 14 else []
    queues = [*_queues(found, view, width, room - len(due) - len(failures))]
    return [*due, *queues, *failures]


def _due(due: Mapping[str, Any], view: View, width: int, lines: int) -> Iterator[Line]:
    counts, beyond = due["counts"][: width - 2], sum(due["counts"][width - 2 :])
    step = timedelta(seconds=due["step"])
    start = datetime.fromisoformat(due["from"])
    span = duration(step.total_seconds() * len(counts))
    yield Line("")
    yield Line(
        f"Due times, next {span}: overdue {due['overdue']:,}, most {max(counts, default=0):,} in "
        f"{duration(step.total_seconds())}, later {due['later'] + beyond:,}",
        BOLD,
    )
    yield from (Line(f" {row}") for row in columns(counts, lines))
    yield Line(" " + _axis([start + step * n for n in range(0, len(counts), 10)], view))


def _axis(instants: Sequence[datetime], view: View) -> str:
    return "".join(f"{instant.astimezone(UTC if view.is_utc else None):%H:%M}     " for instant in instants)


def _queues(found: Snapshot, view: View, width: int, room: int) -> Iterator[Line]:
    shown = _fitting(width)
    yield Line("")
    yield Line("  " + _row({name: name for name in shown}), BOLD)
    queues, rows, selected = found.queues, max(room - 2, 1), row_of(found, view)
    first = max(selected - rows + 1, 0)
    for number, queue in enumerate(queues[first : first + rows], first):
        is_selected = number == selected
        style = REVERSED if is_selected else (YELLOW if queue["paused"] and queue["counts"]["due"] else "")
        cells = _cells_of_queue(queue)
        yield Line(("> " if is_selected else "  ") + _row({name: cells[name] for name in shown}), style)
    if not queues:
        yield Line("  no queues yet: erelong submit echo hello=world makes the first job", DIM)


def row_of(found: Snapshot, view: View) -> int:
    """Return the row of the selected queue; the first if there is no such queue."""
    return next((row for row, queue in enumerate(found.queues) if queue["name"] == view.selected), 0)


def _fitting(width: int) -> list[str]:
    """Return the columns that a screen has room for."""
    shown = [*_QUEUES]
    for name in _DROPPED:
        if 2 + sum(_QUEUES[name] + 1 for name in shown) <= width:
            break
        shown.remove(name)
    return shown


def _cells_of_queue(queue: Mapping[str, Any]) -> dict[str, str]:
    counts, most = queue["counts"], (queue.get("settings") or {}).get("concurrency")
    return {
        "queue": queue["name"],
        "state": "paused" if queue["paused"] else "",
        "due": f"{counts['due']:,}",
        "waiting": f"{counts['scheduled']:,}",
        "running": f"{counts['running']:,}" + (f"/{most}" if most else ""),
        "late p99": _milliseconds(queue.get("late_p99")),
        "failed": f"{counts['failed']:,}",
    }


def _row(cells: Mapping[str, str]) -> str:
    """Return cells under their headers: words to the left, numbers to the right."""
    return " ".join(
        f"{cell[: _QUEUES[name]]:{_QUEUES[name]}}" if name in ("queue", "state") else f"{cell:>{_QUEUES[name]}}"
        for name, cell in cells.items()
    )


def _failures(found: Snapshot, view: View) -> Iterator[Line]:
    yield Line("")
    yield Line("Last failures", BOLD)
    for job in found.failures:
        message = (job.get("error") or {}).get("message", "")
        ended = f"{_local(job['finished_at'], view):%H:%M:%S}" if job.get("finished_at") else ""
        yield Line(f"  {ended}  {job['kind']}  {job['queue']}  {message}", RED)
    if not found.failures:
        yield Line("  none", DIM)


# the jobs of a queue


def _jobs(found: Snapshot, view: View, room: int) -> Iterator[Line]:
    yield Line("")
    yield Line(f"Waiting jobs of {view.opened}, by due time", BOLD)
    for job in found.jobs[: max(room - 2, 0)]:
        due_at = job.get("due_at")
        when = f"{_local(due_at, view):%Y-%m-%d %H:%M:%S}" if due_at else ""
        yield Line(f"  {job['id']}  {when}  {job['kind']}  {job.get('waiting_for') or ''}  {job.get('key') or ''}")
    if not found.jobs:
        yield Line("  none", DIM)


def _local(text: str, view: View) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC if view.is_utc else None)


def _milliseconds(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    return f"{seconds * 1_000:.1f} ms" if seconds < 1 else duration(seconds)
