"""A real service applies the newest time-zone rules of the machine, also after it was killed."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from erelong.clock.instants import SECOND, format_instant, now, parse_instant
from tests.support.process import ServiceProcess
from tests.system.client import Client

pytestmark = [pytest.mark.real_loop, pytest.mark.timeout(60)]

ZONE = "Test/Here"


def write_rules(folder: Path, version: str, hours: int) -> None:
    """Write the rules of one zone with a fixed offset, as the zone compiler does."""
    name = f"<{hours:+03d}>"
    header = b"TZif2" + bytes(15) + struct.pack(">6l", 0, 0, 0, 0, 1, 4)
    data = struct.pack(">lbb", hours * 3600, 0, 0) + b"+00\0"
    (folder / "Test").mkdir(parents=True, exist_ok=True)
    (folder / ZONE).write_bytes((header + data) * 2 + f"\n{name}{-hours}\n".encode())
    (folder / "+VERSION").write_text(f"{version}\n")


@pytest.mark.parametrize("is_killed", [False, True])
async def test_waiting_job_moves_when_the_service_starts_with_other_rules(
    make_service: Callable[..., ServiceProcess],
    make_client: Callable[[ServiceProcess], Client],
    tmp_path: Path,
    is_killed: bool,
) -> None:
    rules = tmp_path / "rules"
    service = make_service(environment={"PYTHONTZPATH": str(rules)})
    at = (now() // SECOND + 20 * 3600) * SECOND
    local_time = format_instant(at)[:19]

    write_rules(rules, "2026a", 1)
    service.start()
    jobs = [await make_client(service).submit(kind="echo", local_time=local_time, zone=ZONE) for _ in range(3)]
    end(service, is_killed)

    for version, (rules_version, hours) in enumerate((("2026a", 1), ("2026b", 3), ("2026a", 1)), 1):
        write_rules(rules, rules_version, hours)
        service.start()
        moved = [await read_version(make_client(service), job["id"], version) for job in jobs]
        _, answer = await make_client(service).ask("GET", "/readyz")
        end(service, is_killed)

        assert answer["checks"]["zones"] == f"ok, {rules_version}"
        for job in moved:
            assert (job["version"], job["local_time"], job["zone"]) == (version, local_time, ZONE)
            assert parse_instant(job["due_at"], now(), 1e9) == at - hours * 3600 * SECOND


async def read_version(client: Client, id: str, version: int) -> dict[str, Any]:
    """Return a job as soon as it has reached a version."""
    known = {"If-None-Match": f'"{version - 1}"'}
    _, _, job = await client.ask_closely("GET", f"/v1/jobs/{id}?wait=30", headers=known)
    return dict(job)


def end(service: ServiceProcess, is_killed: bool) -> None:
    if is_killed:
        service.kill()
    else:
        service.stop()
