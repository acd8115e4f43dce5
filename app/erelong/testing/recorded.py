"""Jobs in memory, as a service shows them: the part of its API about single jobs."""

from __future__ import annotations

import secrets
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

from erelong.client.records import FINAL
from erelong.clock.instants import SECOND, format_instant, parse_duration, parse_instant

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from erelong.clock.instants import Instant

    Raw = dict[str, Any]

HORIZON: Final = 3_650 * 86_400.0
RETRY: Final = {"max_attempts": 5, "delay": 5.0, "factor": 3.0, "max_delay": 3_600.0, "jitter": 0.2}
MILLISECOND: Final = 1_000  # microseconds
TIMES: Final = frozenset({"execute_at", "delay", "local_time", "zone"})
LIVE: Final = frozenset({"scheduled", "running"})


class Problem(Exception):
    """A refusal, as the service would send it."""

    def __init__(self, status: int, code: str, detail: str, **more: Any) -> None:
        super().__init__(detail)
        self.status = status
        self.body = {"status": status, "code": code, "detail": detail, **more}


class Recorded:
    """The jobs, by id in the order of their submits, and the instant at which the clock stands."""

    def __init__(self, *, now: Instant) -> None:
        self.now = -(-now // MILLISECOND) * MILLISECOND  # as instants are shown
        self.jobs: dict[str, Raw] = {}
        self._waiting: dict[str, Raw] = {}
        self._expiries: dict[str, float | None] = {}  # seconds after the due time, by id
        self._seq = 0

    def find(self, name: str, queue: str | None = None) -> Raw:
        """Return a job by its id, or by `~` and the key of a live job."""
        if name.startswith("~"):
            found = self._holder(name[1:], queue)
            if found is not None:
                return found
        elif name in self.jobs:
            return self.jobs[name]
        raise Problem(404, "job_not_found", f"no job {name!r}")

    def next_due(self, until: Instant, kinds: Container[str]) -> Raw | None:
        """Return the first waiting job of these kinds that is due by then."""
        found = [(_micros(job["due_at"]), job["id"]) for job in self._waiting.values() if job["kind"] in kinds]
        first = min(found, default=None)
        return None if first is None or first[0] > until else self.jobs[first[1]]

    # changes

    def submit(self, body: Mapping[str, Any]) -> tuple[int, Raw]:
        """Store a job, or do with the holder of its key what `on_conflict` says; return the status and the job."""
        given = {name: value for name, value in body.items() if value is not None}
        holder = self._holder(given["key"], given.get("queue", "default")) if "key" in given else None
        policy = given.get("on_conflict", "reject")
        if holder is None:
            return 201, self._add(given)
        if policy == "keep":
            return 200, holder
        if policy == "reschedule":
            return 200, self.change(holder, {name: value for name, value in given.items() if name in TIMES})
        if policy == "replace":
            return 200, self._expire(self._step(holder, **self._made(given)), given.get("expires_after"))
        raise Problem(409, "key_taken", f"job {holder['id']} holds the key {given['key']!r}", job=holder)

    def change(self, job: Raw, changes: Mapping[str, Any], version: int | None = None) -> Raw:
        _check(job, version, "scheduled")
        fields = {name: value for name, value in changes.items() if name not in TIMES | {"expires_after"}}
        if fields.keys() & {"timeout"}:
            fields["timeout"] = parse_duration(fields["timeout"])
        if "retry" in fields:
            fields["retry"] = {**job["retry"], **_policy(fields["retry"])}
        if TIMES & changes.keys():
            fields |= self._due(changes)
        return self._expire(self._step(job, **fields), changes.get("expires_after", self._expiries[job["id"]]))

    def cancel(self, job: Raw, reason: str | None = None, version: int | None = None) -> Raw:
        if job["state"] == "cancelled" and version is None:
            return job
        _check(job, version, *LIVE)
        error = {"type": "cancelled", "message": reason or "cancelled by a client", "retryable": False}
        return self.end(job, "cancelled", error=error)

    def run(self, job: Raw, version: int | None = None) -> Raw:
        _check(job, version, "scheduled")
        return self._step(job, due_at=format_instant(self.now))

    def retry(self, job: Raw, changes: Mapping[str, Any], version: int | None = None) -> Raw:
        _check(job, version, *(FINAL - {"succeeded"}))
        now = format_instant(self.now)
        fresh = {"state": "scheduled", "execute_at": now, "due_at": now, "attempt": 0, "finished_at": None}
        self._step(job, **fresh, error=None, result=None)
        if changes:
            job["version"] -= 1
            self.change(job, changes)
        return job

    def delete(self, job: Raw, version: int | None = None) -> None:
        _check(job, version, "scheduled", *FINAL)
        del self.jobs[job["id"]]
        self._waiting.pop(job["id"], None)

    # attempts

    def begin(self, job: Raw) -> Raw:
        return self._step(job, state="running", attempt=job["attempt"] + 1, started_at=format_instant(self.now))

    def again(self, job: Raw, delay: float, error: Mapping[str, Any]) -> Raw:
        due_at = format_instant(self.now + round(delay * SECOND))
        return self._step(job, state="scheduled", due_at=due_at, error=error)

    def end(self, job: Raw, state: str, **fields: Any) -> Raw:
        return self._step(job, state=state, due_at=None, finished_at=format_instant(self.now), **fields)

    def note(self, job: Raw, outcome: str, error: Mapping[str, Any] | None, output: str | None) -> None:
        """Add an attempt to the history of a job."""
        entry = {"number": job["attempt"], "started_at": job["started_at"], "finished_at": format_instant(self.now)}
        entry |= {"late_by": 0.0, "outcome": outcome, "error": error}
        job["attempts"] = [*job["attempts"], entry | ({} if output is None else {"output": output})]

    def _add(self, given: Mapping[str, Any]) -> Raw:
        self._seq += 1
        job = self._made(given)
        job = {"id": f"{self._seq:010x}{secrets.token_hex(8)}", **job, "version": 1}
        self.jobs[job["id"]] = self._waiting[job["id"]] = job
        return self._expire(job, given.get("expires_after"))

    def _expire(self, job: Raw, after: Any) -> Raw:
        """Let a job expire so long after its due time, also when that moves."""
        seconds = self._expiries[job["id"]] = None if after is None else parse_duration(after)
        if seconds is None:
            job["expires_at"] = None
        else:
            job["expires_at"] = format_instant(_micros(job["due_at"]) + round(seconds * SECOND))
        return job

    def _made(self, given: Mapping[str, Any]) -> Raw:
        """Return the fields of a new job, without its id and version."""
        if "kind" not in given:
            raise Problem(422, "invalid", "the job is not valid: /kind: is missing")
        return {
            "state": "scheduled",
            "kind": given["kind"],
            "queue": given.get("queue", "default"),
            "params": given.get("params", {}),
            "key": given.get("key"),
            "labels": given.get("labels", {}),
            "priority": given.get("priority", 0),
            "timeout": parse_duration(given.get("timeout", 60.0)),
            "retry": {**RETRY, **_policy(given.get("retry", {}))},
            **self._due(given),
            "expires_at": None,
            "attempt": 0,
            "cancel_requested": False,
            "created_at": format_instant(self.now),
            "started_at": None,
            "finished_at": None,
            "late_by": None,
            "result": None,
            "error": None,
            "attempts": [],
        }

    def _due(self, given: Mapping[str, Any]) -> Raw:
        """Return the due time of the fields of a request."""
        if "execute_at" in given:
            instant = parse_instant(given["execute_at"], self.now, HORIZON)
        elif "local_time" in given:
            local = datetime.fromisoformat(given["local_time"]).replace(tzinfo=ZoneInfo(given.get("zone", "UTC")))
            instant = round(local.timestamp() * SECOND)
        else:
            instant = self.now + round(parse_duration(given.get("delay", 0)) * SECOND)
        due_at = format_instant(instant)
        return {"execute_at": due_at, "due_at": due_at}

    def _holder(self, key: str, queue: str | None) -> Raw | None:
        live = (job for job in self.jobs.values() if job["state"] in LIVE and job["key"] == key)
        return next((job for job in live if queue is None or job["queue"] == queue), None)

    def _step(self, job: Raw, **fields: Any) -> Raw:
        job |= {**fields, "version": job["version"] + 1}
        if job["state"] == "scheduled":
            self._waiting[job["id"]] = job
        else:
            self._waiting.pop(job["id"], None)
        return job


def _check(job: Raw, version: int | None, *states: str) -> None:
    if version is not None and version != job["version"]:
        raise Problem(412, "version_mismatch", f"job {job['id']} has version {job['version']}, not {version}")
    if job["state"] not in states:
        raise Problem(409, "wrong_state", f"job {job['id']} is {job['state']}, not {' or '.join(states)}", job=job)


def _policy(given: Mapping[str, Any]) -> Raw:
    durations = {name: parse_duration(given[name]) for name in ("delay", "max_delay") if name in given}
    return {**given, **durations}


def _micros(text: str) -> Instant:
    return round(datetime.fromisoformat(text).timestamp() * SECOND)
