"""The command that writes jobs: as the API shows them, or as lines that `import` reads."""

from __future__ import annotations

import csv
import json
import sys
from typing import TYPE_CHECKING, Any

from erelong.cli.client.options import add_filters, filters_of
from erelong.cli.client.running import client_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Mapping

SUBMITTED = ("kind", "params", "queue", "priority", "timeout", "retry", "labels", "key", "execute_at")
COLUMNS = ("id", "kind", "queue", "state", "key", "execute_at", "due_at", "finished_at", "attempt", "params", "error")


def add(_: str, parser: argparse.ArgumentParser) -> None:
    add_filters(parser)
    parser.add_argument("--format", choices=("ndjson", "csv"), default="ndjson")
    parser.add_argument("--as-jobs", action="store_true", help="only the fields of a submit, for `erelong import`")
    parser.add_argument("--schedules", action="store_true", help="schedules in place of jobs")
    parser.set_defaults(call=export)


def export(options: argparse.Namespace) -> int:
    with client_of(options) as client:
        if options.schedules:
            for schedule in client.schedules.list():
                print(json.dumps(client.schedules.get(schedule.name).raw, separators=(",", ":")))
            return 0
        filters: Any = {**filters_of(options), "view": "full", "limit": 1_000}
        jobs: Iterable[Mapping[str, Any]] = (job.raw for job in client.list(**filters))
        if options.as_jobs:
            jobs = ({name: job[name] for name in SUBMITTED if job.get(name) is not None} for job in jobs)
        if options.format == "csv":
            _write_csv(jobs, SUBMITTED if options.as_jobs else COLUMNS)
        else:
            for job in jobs:
                print(json.dumps(job, separators=(",", ":"), ensure_ascii=False))
    return 0


def _write_csv(jobs: Iterable[Mapping[str, Any]], columns: Iterable[str]) -> None:
    writer = csv.writer(sys.stdout)
    writer.writerow(columns)
    for job in jobs:
        values = [job.get(column) for column in columns]
        writer.writerow([json.dumps(value) if isinstance(value, dict | list) else value for value in values])
