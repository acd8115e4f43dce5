"""The command that writes jobs: as the API shows them, or as lines that `import` reads."""

from __future__ import annotations

import csv
import io
import json
import shlex
import sys
from contextlib import nullcontext
from datetime import datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple

from erelong.cli.console.options import add_filters, filters_of
from erelong.cli.console.output import counted
from erelong.cli.console.running import INTERRUPTED, Usage, client_of
from erelong.cli.files.schedules import as_put
from erelong.client.calls import jobs as calls

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping, Sequence

    from erelong.cli.console.session import Session

PAGE: Final = 1_000
COPIED: Final = ("kind", "params", "queue", "priority", "timeout", "retry", "labels", "key", "on_finish", "spread")
SUBMITTED: Final = (*COPIED, "execute_at", "local_time", "zone", "expires_after")
COLUMNS: Final = (
    "id",
    "kind",
    "queue",
    "state",
    "key",
    "execute_at",
    "due_at",
    "finished_at",
    "attempt",
    "params",
    "error",
)


def add(_: str, parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="write to this file; without it, to the output"
    )
    parser.add_argument("--resume", action="store_true", help="with -o: continue an export that was interrupted")
    parser.add_argument("--format", choices=("ndjson", "csv"), default="ndjson", help="ndjson (default), or csv")
    parser.add_argument("--as-jobs", action="store_true", help="only the fields of a submit, for: erelong import")
    parser.add_argument(
        "--schedules", action="store_true", help="schedules in place of jobs, for: erelong import --schedules"
    )
    add_filters(parser, is_listing=True)
    parser.set_defaults(call=export)


def export(options: argparse.Namespace) -> int:
    if options.resume and (options.output is None or options.schedules):
        raise Usage("--resume goes with the -o FILE of jobs")
    with client_of(options) as client:
        if options.schedules:
            number = _export_schedules(client, options.output)
            if options.output is not None:
                print(f"{counted(number, 'schedule')} in {options.output}", file=sys.stderr)
            return 0
        if options.output is None:
            _write_pages(client, options, Place(filters_of(options)), sys.stdout, None)
            return 0
        return _export_to_file(client, options)


def _export_schedules(client: Session, path: Path | None) -> int:
    """Write all schedules; return how many there are."""
    target, number = nullcontext(sys.stdout) if path is None else path.open("w", encoding="utf-8"), 0
    with target as file:
        for schedule in client.schedules.list():
            file.write(_line(as_put(client.schedules.get(schedule.name).raw)))
            number += 1
    return number


class Place(NamedTuple):
    """Where an export stands: its cursor, the size of its file, and the jobs in it."""

    filters: Mapping[str, Any]
    cursor: str | None = None
    size: int = 0
    jobs: int = 0


def _export_to_file(client: Session, options: argparse.Namespace) -> int:
    """Write the jobs to a file; after each page, note the place beside it, from which --resume continues."""
    path: Path = options.output
    notes = path.with_name(f"{path.name}.export")
    place = _resumed(path, notes, filters_of(options)) if options.resume else Place(filters_of(options))
    if not options.resume and notes.exists():
        raise Usage(f"an export to this file was interrupted: add --resume, or delete {notes} to begin again")
    with path.open("r+" if place.size else "w", encoding="utf-8", newline="") as file:
        file.truncate(place.size)  # drops the part of a page that is not noted
        file.seek(place.size)
        try:
            number = _write_pages(client, options, place, file, notes)
        except BaseException as error:
            if notes.exists():
                words = [word for word in options.typed if word != "--resume"]
                print(f"erelong: continue with: erelong export {shlex.join([*words, '--resume'])}", file=sys.stderr)
            if isinstance(error, KeyboardInterrupt):
                return INTERRUPTED
            raise
    notes.unlink(missing_ok=True)
    print(f"{counted(number, 'job')} in {path}", file=sys.stderr)
    return 0


def _resumed(path: Path, notes: Path, filters: Mapping[str, Any]) -> Place:
    if not notes.exists():
        raise Usage(f"there is nothing to continue: {notes} does not exist")
    place = Place(**json.loads(notes.read_text(encoding="utf-8")))
    if place.filters != filters:
        raise Usage(f"the export began with other conditions: {json.dumps(place.filters)}")
    if not path.exists() or path.stat().st_size < place.size:
        raise Usage(f"{path} is shorter than it was; delete {notes} to begin again")
    return place


def _write_pages(client: Session, options: argparse.Namespace, place: Place, file: IO[str], notes: Path | None) -> int:
    columns = SUBMITTED if options.as_jobs else COLUMNS
    make: Callable[[Mapping[str, Any]], Mapping[str, Any]] = as_submit if options.as_jobs else dict
    if options.format == "csv" and not place.size:
        file.write(_row(columns))
    number, cursor = place.jobs, place.cursor
    while True:
        page = client.send(calls.page({**place.filters, "view": "full", "limit": PAGE}, cursor))
        for raw in page["jobs"]:
            job = make(raw)
            file.write(_row([job.get(column) for column in columns]) if options.format == "csv" else _line(job))
        number, cursor = number + len(page["jobs"]), page.get("next")
        file.flush()
        if cursor is None:
            return number
        if notes is not None:
            _note(notes, Place(place.filters, cursor, file.tell(), number))


def _note(notes: Path, place: Place) -> None:
    new = notes.with_name(f"{notes.name}.new")
    new.write_text(json.dumps(place._asdict()), encoding="utf-8")
    new.replace(notes)


def as_submit(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return the submit that makes a job like this one."""
    fields = {name: job[name] for name in COPIED if job.get(name) not in (None, {}, 0.0) or name == "params"}
    if "on_finish" in fields:
        fields["on_finish"] = {name: value for name, value in job["on_finish"].items() if name != "job"}
    if job.get("local_time"):
        fields |= {"local_time": job["local_time"], "zone": job["zone"]}
    else:
        fields["execute_at"] = job["execute_at"]
    if job.get("expires_at"):
        left = datetime.fromisoformat(job["expires_at"]) - datetime.fromisoformat(job["due_at"] or job["execute_at"])
        fields["expires_after"] = max(left.total_seconds(), 0.001)
    return fields


def _line(value: Mapping[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False) + "\n"


def _row(values: Sequence[Any]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(
        json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value for value in values
    )
    return text.getvalue()
