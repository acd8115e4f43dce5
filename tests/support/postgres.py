"""A PostgreSQL server for the tests: started on first use, on a Unix socket of its own, and stopped with them."""

from __future__ import annotations

import ctypes
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from erelong.stores.postgres.connection import SCHEMA_NAME
from tests.support.needs import report_missing
from tests.support.process import TICKS, cpu_seconds

NEED = "needs a PostgreSQL server: on Debian or Ubuntu, apt-get install postgresql"
START_TIMEOUT = 20.0
SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",  # the machine does not fail in tests, which therefore open their stores with durability "normal"
    "max_connections": "60",
    "shared_buffers": "32MB",
    "autovacuum": "off",  # plans must not depend on it
}
GUARDED = "guarded"
"""A user who needs a password."""
PASSWORD = "canary-right"
_PR_SET_PDEATHSIG = 1


class PostgresServer:
    """A server with one database. `initdb` refuses root, so as root it belongs to another user."""

    def __init__(self, settings: Mapping[str, str] = SETTINGS) -> None:
        self._settings = settings
        self._bin = _find_programs()
        self.home = Path(tempfile.mkdtemp(prefix="erelong-postgres-"))
        self.data = self.home / "data"
        self._user: dict[str, Any] = {}
        if os.geteuid() == 0:
            owner = pwd.getpwnam("nobody")
            self._user = {"user": owner.pw_uid, "group": owner.pw_gid}
            self.give(self.home)
        options = ["--auth=trust", "--username=erelong", "--encoding=UTF8", "--locale=C", "--no-sync"]
        self.run("initdb", "-D", str(self.data), *options)
        rules = self.data / "pg_hba.conf"
        rules.write_text(f"local all {GUARDED} scram-sha-256\nlocal all stranger reject\n{rules.read_text()}")
        self._process: subprocess.Popen[bytes] | None = None
        self.start()
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f"CREATE ROLE {GUARDED} SUPERUSER LOGIN PASSWORD '{PASSWORD}'".encode())

    @property
    def url(self) -> str:
        return f"postgresql://erelong@/postgres?host={self.home}"

    @property
    def pid(self) -> int:
        """The process id of the postmaster."""
        assert self._process is not None
        return self._process.pid

    def cpu_seconds(self) -> float:
        """Return the CPU time of its processes, also of those that have ended."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        ended = (int(fields[13]) + int(fields[14])) / TICKS
        return ended + sum(map(cpu_seconds, [self.pid, *map(int, children)]))

    def start(self) -> None:
        """Start the server; it ends with the thread that has started it."""
        settings = [f"-c{name}={value}" for name, value in self._settings.items()]
        command = [str(self._bin / "postgres"), "-D", str(self.data), "-k", str(self.home), *settings]
        with (self.home / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=self.home, preexec_fn=_die_with_parent, **self._user
            )
        until = time.monotonic() + START_TIMEOUT
        while not self._is_ready():
            if self._process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"PostgreSQL does not start: {(self.home / 'log').read_text()[-2000:]}")
            time.sleep(0.02)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop the server: SIGINT ends all sessions first, SIGQUIT stops at once and needs a recovery."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.send_signal(how)
            self._process.wait(START_TIMEOUT)
            self._process = None

    def remove(self) -> None:
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.home, ignore_errors=True)

    def make_database(self, name: str) -> str:
        """Make an empty database and return its URL."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"'.encode())
        return f"postgresql://erelong@/{name}?host={self.home}"

    def empty(self) -> None:
        """Make the store of erelong as it was when it was made, or leave it to be made."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            rows = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", [SCHEMA_NAME]).fetchall()
            tables = {name for (name,) in rows} - {"meta", "fences", "terms"}
            if tables:
                connection.execute(f"SET search_path = {SCHEMA_NAME}")
                connection.execute(f"TRUNCATE {', '.join(sorted(tables))}".encode())
                connection.execute("UPDATE meta SET claims_half = 0, tallies_half = 0, folded = 0")
                connection.execute("UPDATE fences SET epoch = 0")
                connection.execute("UPDATE terms SET node = NULL, locked = false, next_seq = 1")

    def drop(self, database: str = "postgres") -> None:
        """Drop the schema of a database."""
        with psycopg.connect(self.url, dbname=database, autocommit=True) as connection:
            connection.execute(f"DROP SCHEMA IF EXISTS {SCHEMA_NAME} CASCADE")

    def _is_ready(self) -> bool:
        try:
            psycopg.connect(self.url).close()
        except psycopg.OperationalError:
            return False
        return True

    def give(self, folder: Path) -> None:
        """Let the user of the server own a folder."""
        if self._user:
            os.chown(folder, self._user["user"], self._user["group"])

    def run(self, program: str, *arguments: str) -> None:
        """Run one of the programs of PostgreSQL."""
        done = subprocess.run(
            [self._bin / program, *arguments], capture_output=True, check=False, cwd=self.home, **self._user
        )
        assert done.returncode == 0, done.stderr.decode()

    @contextmanager
    def running(self, program: str, *arguments: str) -> Iterator[None]:
        """Run a program as the user of the server, and end it."""
        with (self.home / "log").open("ab") as log:
            process = subprocess.Popen(
                [self._bin / program, *arguments],
                stdout=log,
                stderr=log,
                cwd=self.home,
                preexec_fn=_die_with_parent,
                **self._user,
            )
        try:
            yield
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(START_TIMEOUT)


def _find_programs() -> Path:
    """Return the folder of `initdb` and `postgres`. Debian keeps it outside the PATH."""
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).resolve().parent
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not installed:
        report_missing(NEED)
    return installed[-1].parent


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGINT)
