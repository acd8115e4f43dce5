"""A worker outside, as others would write one, in a process that may be killed at any moment: python pull_worker.py
<file with the port> <log> [seconds of work]. It writes down every answer that it gets, one write a line."""

from __future__ import annotations

import http.client
import json
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

MOST_LEASES = 20
PATIENCE = 0.05  # between two tries at a service that is down


class Worker:
    """Leases jobs, a few at once, keeps those that wait for their turn and answers for each."""

    def __init__(self, *, port_file: Path, log: Path, work: float) -> None:
        self._port_file = port_file
        self._log = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._work = work
        self._connection: http.client.HTTPConnection | None = None

    def run(self) -> None:
        while True:
            seconds = random.choice([1, 1.5, 2])
            asked = {"kinds": ["work"], "max": random.randint(2, MOST_LEASES), "wait": 5, "lease": seconds}
            status, answer = self._call("", asked)
            if status != 200:
                self._write("lease", "-", "-", 0, status, answer["code"])
                continue
            began = time.monotonic()
            for lease in answer["leases"]:
                self._write("lent", lease["token"], lease["job"]["id"], lease["job"]["attempt"], status, "-")
            self._do_all(answer["leases"], began, seconds)

    def _do_all(self, leases: list[dict[str, Any]], beaten_at: float, seconds: float) -> None:
        while leases:
            if time.monotonic() - beaten_at > seconds / 3:
                beaten_at = time.monotonic()
                leases = [lease for lease in leases if self._say(lease, "extend", {"lease": seconds}) == 200]
                continue
            lease = leases.pop(0)
            if self._work:
                time.sleep(random.expovariate(1 / self._work))
            draw = random.random()
            if draw < 0.02:
                self._say(lease, "release", {})
            elif draw < 0.06:
                self._say(lease, "fail", {"delay": 0.1})
            else:
                self._say(lease, "finish", {"result": lease["token"]})

    def _say(self, lease: dict[str, Any], verb: str, body: dict[str, Any]) -> int:
        status, answer = self._call(f"/{lease['token']}/{verb}", body)
        code = "-" if status == 200 else answer["code"]
        self._write(verb, lease["token"], lease["job"]["id"], lease["job"]["attempt"], status, code)
        return status

    def _call(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        """Ask until there is an answer that is not about the service being away."""
        while True:
            try:
                if self._connection is None:
                    port = int(self._port_file.read_text())
                    self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
                headers = {"Content-Type": "application/json"}
                self._connection.request("POST", "/v1/leases" + path, json.dumps(body), headers)
                response = self._connection.getresponse()
                status, text = response.status, response.read()
            except (OSError, ValueError, http.client.HTTPException):  # it is down: perhaps it took the answer
                self._connection = None
                time.sleep(PATIENCE)
                continue
            if status != 503:
                return status, json.loads(text)
            time.sleep(PATIENCE)

    def _write(self, verb: str, token: str, id: str, attempt: int, status: int, code: str) -> None:
        os.write(self._log, f"{time.time_ns()} {verb} {token} {id} {attempt} {status} {code}\n".encode())


if __name__ == "__main__":
    port_file, log, work = sys.argv[1:]
    Worker(port_file=Path(port_file), log=Path(log), work=float(work)).run()
