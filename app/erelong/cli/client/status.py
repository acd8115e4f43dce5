"""Commands that show the service as a whole: its health with remedies, and its due times."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from erelong.cli.console.attention import issues_of
from erelong.cli.console.blocks import bar
from erelong.cli.console.options import add_labels, positive, seconds
from erelong.cli.console.output import printable, to_json, width_of_terminal
from erelong.cli.console.running import REFUSED, client_of, output_of
from erelong.client.errors import ErelongError
from erelong.client.requests import get

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from erelong.cli.console.session import Session

ROWS: Final = 24


def add(name: str, parser: argparse.ArgumentParser) -> None:
    if name == "status":
        parser.set_defaults(call=status)
        return
    parser.add_argument("--by", type=seconds, metavar="DURATION", default=3_600.0, help="width of a bar (1h)")
    parser.add_argument("--bins", type=positive, metavar="N", default=ROWS, help=f"number of bars ({ROWS})")
    parser.add_argument("--from", dest="start", metavar="TIME", help="begin at this instant instead of now")
    parser.add_argument("--queue", action="append", help="repeatable")
    parser.add_argument("--kind", action="append", help="repeatable")
    add_labels(parser)
    parser.set_defaults(call=due)


def status(options: argparse.Namespace) -> int:
    """Print what the service does and what needs attention; exit 1 if a check fails."""
    output = output_of(options)
    with client_of(options) as client:
        stats = client.stats()
        if options.json or options.fields:
            output.item(stats)
            return 0 if stats["ready"] else REFUSED
        issues = issues_of(stats, _optional(client, "/v1/queues", "queues"), _optional(client, "/v1/kinds", "kinds"))
    print(f"erelong {stats['version']}, since {output.time(stats['started_at'])}")
    jobs, late = stats["jobs"], stats.get("late", {}).get("p99")
    counts = [f"{jobs[state]:,} {word}" for state, word in (("scheduled", "waiting"), ("due", "of them due"))]
    counts += [f"{jobs[state]:,} {state}" for state in ("running", "succeeded", "failed")]
    print(", ".join(counts) + (f"; late p99 {late * 1_000:.1f} ms" if late is not None else ""))
    for issue in issues:
        print(f"  ! {printable(issue)}")
    if not issues:
        print(f"all {len(stats.get('checks', {}))} checks are ok" if stats.get("checks") else "nothing needs attention")
    return 0 if stats["ready"] else REFUSED


def _optional(client: Session, path: str, name: str) -> list[dict[str, Any]]:
    """Return a list that an older service does not have, or this key may not read, as an empty one."""
    try:
        found: list[dict[str, Any]] = client.send(get(path))[name]
    except (ErelongError, KeyError):
        return []
    return found


def due(options: argparse.Namespace) -> int:
    labels = {f"label.{name}": value for name, value in options.label}
    query = {"step": f"{options.by:g}s", "bins": options.bins, "from": options.start}
    with client_of(options) as client:
        found = client.send(get("/v1/due", {**query, "queue": options.queue, "kind": options.kind, **labels}))
    if options.json:
        print(to_json(found))
        return 0
    rows = _rows_of(found)
    if not sys.stdout.isatty():
        for instant, count in rows:
            print(f"{instant}\t{count}")
        return 0
    _draw(rows, float(found["step"]), options.utc)
    if found["sampled"] > 1:
        print(f"erelong: estimated from every {found['sampled']}th job", file=sys.stderr)
    return 0


def _rows_of(found: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Return the number of jobs by the instant at which each bin begins, with what lies before and after."""
    start = datetime.fromisoformat(found["from"])
    step = timedelta(seconds=found["step"])
    bins = [(_instant(start + n * step), count) for n, count in enumerate(found["counts"])]
    return [("overdue", found["overdue"]), *bins, ("later", found["later"])]


def _instant(instant: datetime) -> str:
    """Return an instant as the API writes it."""
    return instant.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _draw(rows: list[tuple[str, int]], step: float, is_utc: bool) -> None:
    names = [name if name in ("overdue", "later") else _local(name, step, is_utc) for name, _ in rows]
    width = max(map(len, names))
    digits = max(len(f"{count:,}") for _, count in rows)
    most = max(count for _, count in rows) or 1
    room = max(width_of_terminal() - width - digits - 3, 8)
    for name, (_, count) in zip(names, rows, strict=True):
        print(f"{name:{width}} {count:{digits},} {bar(count / most, room)}".rstrip())


def _local(text: str, step: float, is_utc: bool) -> str:
    instant = datetime.fromisoformat(text).astimezone(UTC if is_utc else None)
    if step >= 86_400:
        return f"{instant:%a %d %b}"
    return f"{instant:%a %H:%M}" if step >= 60 else f"{instant:%H:%M:%S}"
