"""Schedules as lines: which of their fields a client may set, and the command that puts them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from erelong.cli.console.output import counted, printable
from erelong.cli.console.running import REFUSED, Usage, client_of
from erelong.cli.files.lines import open_lines, refuse_other_forms
from erelong.cli.files.sending import reason_of
from erelong.client.calls import schedules as calls
from erelong.client.errors import Conflict, Invalid, Refused
from erelong.client.requests import segment, send

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from erelong.cli.console.session import Session

TIMING: Final = (
    *("cron", "every", "anchor", "zone", "gap", "fold", "starts_at", "ends_at"),
    *("spread", "missed", "catchup", "overlap", "job"),
)


def as_put(schedule: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a schedule that a client may set, and whether it is paused."""
    fields = {name: schedule[name] for name in ("name", *TIMING) if schedule.get(name) is not None}
    return fields | ({"paused": True, "reason": schedule.get("reason")} if schedule.get("paused") else {})


def is_schedule(line: bytes) -> bool:
    """Return whether a line is an exported schedule."""
    try:
        found = json.loads(line)
    except ValueError:
        return False
    return isinstance(found, dict) and isinstance(found.get("job"), dict) and "name" in found


def import_schedules(options: argparse.Namespace) -> int:
    """Put the schedules of a file, one per line. The same file again changes nothing, so there is nothing to resume."""
    if options.maps or options.kind or options.queue or options.label or options.resume:
        raise Usage(
            "--schedules goes with no option but --check, --curl and --yes: the same file again changes nothing"
        )
    rejects = Path("rejected.ndjson" if options.file == "-" else f"{options.file}.rejected")
    stored, rejected, first = 0, 0, ""
    with client_of(options) as client, open_lines(options.file) as file:
        refuse_other_forms(options.file, file, is_csv=False)
        for number, line in enumerate(file, 1):
            if line.isspace():
                continue
            if not stored and not rejected:
                _refuse_job(number, line)
                if options.file != "-":
                    rejects.unlink(missing_ok=True)  # of an earlier import of this file
            try:
                _put(client, line, options)
            except (ValueError, Invalid, Conflict) as error:
                report, rejected = _report(number, line, error), rejected + 1
                first = first or f"line {number}: {reason_of(report['errors'], report['code'])}"
                with rejects.open("a", encoding="utf-8") as target:
                    target.write(json.dumps(report, ensure_ascii=False) + "\n")
            else:
                stored += 1
    state = "valid" if options.check else "stored"
    print(f"{counted(stored, 'schedule')} {state}, {rejected:,} rejected", file=sys.stderr)
    if rejected:
        print(printable(f"erelong: see {rejects}; {first}"), file=sys.stderr)
    return REFUSED if rejected else 0


def _refuse_job(number: int, line: bytes) -> None:
    """Raise Usage if a line is a job."""
    try:
        found = json.loads(line)
    except ValueError:
        return
    if isinstance(found, dict) and "name" not in found and ("kind" in found or "params" in found):
        raise Usage(f"line {number} is a job, not a schedule: import jobs without --schedules")


def _put(client: Session, line: bytes, options: argparse.Namespace) -> None:
    found = json.loads(line)
    if not isinstance(found, dict) or not isinstance(found.get("name"), str):
        raise ValueError("a schedule is an object with a name")
    body = {name: found[name] for name in TIMING if found.get(name) is not None}
    client.send(send("PUT", f"/v1/schedules/{segment(found['name'])}", body))
    if found.get("paused") and not options.check:
        client.send(calls.pause(found["name"], found.get("reason")))


def _report(number: int, line: bytes, error: Exception) -> dict[str, Any]:
    text = line.decode(errors="replace").strip()
    if isinstance(error, Refused):
        return {"line": number, "code": error.code, "errors": [*error.errors], "schedule": text}
    return {
        "line": number,
        "code": "malformed_json",
        "errors": [{"pointer": "", "detail": str(error)}],
        "schedule": text,
    }
