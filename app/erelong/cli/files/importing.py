"""The command that submits the jobs of a file, in batches that may be repeated, or puts its schedules."""

from __future__ import annotations

import json
import shlex
import sys
import threading
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from erelong.cli.console.options import add_change, add_labels, labels_of, positive
from erelong.cli.console.output import counted, printable
from erelong.cli.console.running import INTERRUPTED, REFUSED, Usage, client_of
from erelong.cli.files.fields import Fields, mapping, schemas_of
from erelong.cli.files.importer import Importer
from erelong.cli.files.lines import batches, open_lines, refuse_other_forms
from erelong.cli.files.meter import Meter
from erelong.cli.files.progress import Progress, Unresumable
from erelong.cli.files.schedules import import_schedules, is_schedule
from erelong.cli.files.sending import Sender
from erelong.client.errors import ErelongError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from erelong.cli.console.session import Session
    from erelong.cli.files.fields import Schemas
    from erelong.cli.files.lines import Batch

COUNT: Final = 2_000  # lines of a batch


def add(_: str, parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="NDJSON or CSV, also .gz; - reads NDJSON from standard input")
    parser.add_argument("--kind", help="for jobs without one")
    parser.add_argument("--queue", help="for jobs without one")
    add_labels(parser)
    parser.add_argument(
        *("--map", "-m"),
        dest="maps",
        type=mapping,
        action="append",
        default=[],
        metavar="FIELD=COLUMN",
        help="take a field of the job from a column or field of the line, such as params.url=link; with this, only "
        "mapped fields are taken; repeatable",
    )
    parser.add_argument("--schedules", action="store_true", help="the lines are schedules, as export --schedules has")
    parser.add_argument("--parallel", type=positive, default=4, metavar="N", help="batches at a time (4)")
    parser.add_argument("--rate", type=float, metavar="N", help="jobs per second")
    parser.add_argument("--resume", action="store_true", help="continue an import that was interrupted")
    add_change(parser, check="check the jobs without storing them")
    parser.set_defaults(call=import_file)


def import_file(options: argparse.Namespace) -> int:
    if options.schedules:
        return import_schedules(options)
    if options.curl:
        raise Usage("--curl goes with --schedules: an import sends many requests")
    path = None if options.file == "-" else Path(options.file)
    is_csv = options.file.removesuffix(".gz").endswith(".csv")
    with client_of(options, retries=False) as client, open_lines(options.file) as file:
        if not options.check:
            client.confirm(f"Import {options.file}")
        refuse_other_forms(options.file, file, is_csv=is_csv)
        fields = Fields(defaults=_defaults(options), maps=options.maps, schemas=_schemas(client) if is_csv else {})
        progress = _progress_of(options, path, client.url)
        if progress.is_old:
            _require_keys(file, progress, is_csv, fields)
        meter = Meter(total=path.stat().st_size if path is not None and path.suffix != ".gz" else 0)
        stop = threading.Event()
        rejects = Path("rejected.ndjson" if path is None else f"{path}.rejected")
        sender = Sender(
            client=client, progress=progress, meter=meter, rejects=rejects, stop=stop, is_check=options.check
        )
        importer = Importer(
            sender=sender, progress=progress, meter=meter, stop=stop, parallel=options.parallel, rate=options.rate
        )
        found = _refuse_schedules(batches(file, count=progress.count, is_csv=is_csv, fields=fields))
        if path is not None and not options.resume:
            rejects.unlink(missing_ok=True)  # of an earlier import of this file
        is_whole = False
        try:
            is_whole = importer.run(found)
        finally:
            _conclude(options, progress, meter, is_whole)
    if meter.rejected:
        print(f"erelong: {counted(meter.rejected, 'line')} rejected: see {rejects}", file=sys.stderr)
        print(printable(f"  {sender.first_reject}"), file=sys.stderr)
    return INTERRUPTED if not is_whole else (REFUSED if meter.rejected else 0)


def _defaults(options: argparse.Namespace) -> dict[str, Any]:
    defaults = {name: value for name in ("kind", "queue") if (value := getattr(options, name)) is not None}
    return defaults | ({"labels": labels_of(options)} if options.label else {})


def _schemas(client: Session) -> Schemas:
    """Return the schemas by which cells of CSV become numbers or text; none if this key may not read them."""
    try:
        return schemas_of([kind.raw for kind in client.kinds()])
    except ErelongError as error:
        print(f"erelong: params of CSV are read as JSON where they can be, since {error}", file=sys.stderr)
        return {}


def _progress_of(options: argparse.Namespace, path: Path | None, url: str) -> Progress:
    made_by = [_defaults(options), options.maps] if options.maps or _defaults(options) else None
    path = None if options.check else path  # a check leaves no trace
    if options.check and options.resume:
        raise Usage("--check and --resume do not go together")
    try:
        return Progress(path=path, url=url, count=COUNT, made_by=made_by, is_resumed=options.resume)
    except Unresumable as error:
        raise Usage(str(error)) from None


def _require_keys(file: IO[bytes], progress: Progress, is_csv: bool, fields: Fields) -> None:
    """Continue an old import only if each line that is left has a key: the service has forgotten its batches."""
    for batch in batches(file, count=progress.count, is_csv=is_csv, fields=fields):
        for number, line in batch.lines if not progress.has(batch.offset) else ():
            if not _has_key(line):
                raise Usage(
                    "the import began more than 23 h ago, and the service forgets after 24 h which batches it has; "
                    f"only lines with a key could be sent again; line {number} has none"
                )
    file.seek(0)
    progress.begin_again()


def _has_key(line: bytes) -> bool:
    try:
        job = json.loads(line)
    except ValueError:
        return True  # it will be rejected
    return not isinstance(job, dict) or bool(job.get("key"))


def _refuse_schedules(found: Iterator[Batch]) -> Iterator[Batch]:
    """Return all batches; raise Usage if the first line is a schedule."""
    first = next(found, None)
    if first is None:
        return found
    number, line = first.lines[0]
    if is_schedule(line):
        raise Usage(f"line {number} is a schedule, not a job: import schedules with --schedules")
    return chain([first], found)


def _conclude(options: argparse.Namespace, progress: Progress, meter: Meter, is_whole: bool) -> None:
    """Show the totals, and how to continue."""
    meter.show(is_last=True)
    if options.check:
        return
    if meter.known:
        print(
            f"erelong: {meter.known:,} of the jobs had been stored by an earlier run; to import the file once more, "
            "touch it",
            file=sys.stderr,
        )
    if is_whole:
        progress.remove()
    elif options.file != "-":
        progress.save()
        words = [word for word in options.typed if word != "--resume"]
        print(f"erelong: continue with: erelong import {shlex.join([*words, '--resume'])}", file=sys.stderr)
