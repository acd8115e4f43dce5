"""A pull worker, as a user would write it, in a process that may be killed at any moment: python pull_worker.py
<file with the port> <log> [seconds of work]. It records every response, one line per write."""

from __future__ import annotations

import http.client
import json
import math
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

MOST_LEASES = 20
PATIENCE = 0.05  # seconds between two tries while the service is down
FORGOTTEN = 0.02  # share of the leases that are left to run out
LONG = 1.0  # maximum seconds of a retried job, so that late calls meet leases of other workers


class Lease:
    """A leased job: when its work ends, and when its lease must next be extended."""

    def __init__(self, *, token: str, id: str, attempt: int, seconds: float, now: float) -> None:
        self.token, self.id, self.attempt, self.seconds = token, id, attempt, seconds
        is_forgotten = random.random() < FORGOTTEN
        self.beat_at = math.inf if is_forgotten else now + seconds / 3
        self.answer_at = now + seconds * random.uniform(1.0, 2.0) if is_forgotten else now
        if attempt > 1 and not is_forgotten:
            self.answer_at = now + random.uniform(0, LONG)


class Worker:
    """Leases a few jobs at once, extends their leases and finishes them."""

    def __init__(self, *, port_file: Path, log: Path, work: float) -> None:
        self._port_file = port_file
        self._log = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._work = work
        self._held: list[Lease] = []
        self._connection: http.client.HTTPConnection | None = None

    def run(self) -> None:
        while True:
            now = time.monotonic()
            beats = [lease for lease in self._held if lease.beat_at <= now]
            ready = [lease for lease in self._held if lease.answer_at <= now]
            if beats:
                self._extend(beats[0], now)
            elif ready:
                self._do(ready[0])
            else:
                self._lease(now)

    def _lease(self, now: float) -> None:
        seconds = random.choice([1, 1.5, 2])
        wait = 0.02 if self._held else 5
        body = {"kinds": ["work"], "max": random.randint(2, MOST_LEASES), "wait": wait, "lease": seconds}
        status, answer = self._call("", body)
        for given in answer["leases"] if status == 200 else ():
            id, attempt = given["job"]["id"], given["job"]["attempt"]
            self._held.append(Lease(token=given["token"], id=id, attempt=attempt, seconds=seconds, now=now))
            self._write("lent", self._held[-1], status, "-")

    def _extend(self, lease: Lease, now: float) -> None:
        lease.beat_at = now + lease.seconds / 3
        if self._say(lease, "extend", {"lease": lease.seconds}) != 200:
            self._held.remove(lease)

    def _do(self, lease: Lease) -> None:
        self._held.remove(lease)
        if self._work:
            time.sleep(random.expovariate(1 / self._work))
        draw = random.random()
        if draw < 0.02:
            self._say(lease, "release", {})
        elif draw < 0.06:
            self._say(lease, "fail", {"delay": 0.1})
        else:
            self._say(lease, "finish", {"result": lease.token})

    def _say(self, lease: Lease, verb: str, body: dict[str, Any]) -> int:
        status, answer = self._call(f"/{lease.token}/{verb}", body)
        self._write(verb, lease, status, "-" if status == 200 else answer["code"])
        return status

    def _call(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        """Send a request until the service, which may be down, answers it."""
        while True:
            try:
                if self._connection is None:
                    port = int(self._port_file.read_text())
                    self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
                headers = {"Content-Type": "application/json"}
                self._connection.request("POST", "/v1/leases" + path, json.dumps(body), headers)
                response = self._connection.getresponse()
                status, text = response.status, response.read()
            except (
                OSError,
                ValueError,
                http.client.HTTPException,
            ):  # the service is down, and may have processed the request
                self._connection = None
                time.sleep(PATIENCE)
                continue
            if status != 503:
                return status, json.loads(text)
            time.sleep(PATIENCE)

    def _write(self, verb: str, lease: Lease, status: int, code: str) -> None:
        line = f"{verb} {lease.token} {lease.id} {lease.attempt} {status} {code}\n"
        os.write(self._log, line.encode())


if __name__ == "__main__":
    port_file, log, work = sys.argv[1:]
    Worker(port_file=Path(port_file), log=Path(log), work=float(work)).run()
