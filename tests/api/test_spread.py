"""`spread` of a submit: a share of it, known from the id, delays the job; changes keep the share."""

from __future__ import annotations

from typing import Any

import pytest

from erelong.clock.instants import SECOND, parse_instant
from tests.support.served import Served

HOUR = 3600.0
AT = "2026-02-01T00:00:00Z"


def late_by(service: Served, job: dict[str, Any]) -> float:
    """Return the seconds from execute_at to due_at, as shown."""
    execute_at, due_at = (parse_instant(job[name], service.clock.now(), 1e9) for name in ("execute_at", "due_at"))
    return (due_at - execute_at) / SECOND


def share_of(job: dict[str, Any]) -> float:
    return int(job["id"][-16:], 16) / 2**64


async def test_jobs_are_due_at_their_shares_of_the_spread(service: Served) -> None:
    jobs = [await service.submit(execute_at=AT, spread="1h") for _ in range(20)]

    for job in jobs:
        assert late_by(service, job) == pytest.approx(share_of(job) * HOUR, abs=0.0011)
        assert job["spread"] == HOUR
    assert len({job["due_at"] for job in jobs}) == 20


async def test_equal_bodies_are_spread_each(service: Served) -> None:
    body = {"kind": "echo", "execute_at": AT, "spread": 3600, "params": {"a": 1}}

    batch = await service.post("/v1/jobs/batch", {"jobs": [body] * 5})
    stream = await service.stream(*[body] * 5)

    for id in [job["id"] for job in (*batch.json["jobs"], *stream.lines)]:
        job = await service.job(id)
        assert late_by(service, job) == pytest.approx(share_of(job) * HOUR, abs=0.0011)


async def test_spread_job_starts_at_its_share(service: Served) -> None:
    job = await service.submit(delay=5, spread=50)

    done = await service.until(job["id"], "succeeded")

    assert done["started_at"] >= job["due_at"]
    assert done["late_by"] < 0.01


async def test_job_without_spread_does_not_show_one(service: Served) -> None:
    assert not [job for job in [await service.submit(spread=0), await service.submit(spread=None)] if "spread" in job]


async def test_patch_of_the_time_keeps_the_share(service: Served) -> None:
    job = await service.submit(execute_at=AT, spread=HOUR, expires_after=60)

    moved = (await service.patch(f"/v1/jobs/{job['id']}", {"execute_at": "2026-03-01T00:00:00Z"})).json

    assert late_by(service, moved) == late_by(service, job)
    assert moved["expires_at"] > moved["due_at"] > "2026-03"


async def test_patch_of_the_spread_moves_the_job(service: Served) -> None:
    job = await service.submit(execute_at=AT, spread=HOUR)
    path = f"/v1/jobs/{job['id']}"

    wider = (await service.patch(path, {"spread": "10h"})).json
    none = (await service.patch(path, {"spread": None})).json

    assert late_by(service, wider) == pytest.approx(share_of(job) * 10 * HOUR, abs=0.0011)
    assert wider["execute_at"] == none["execute_at"] == none["due_at"] == job["execute_at"]
    assert "spread" not in none


async def test_patch_of_the_spread_leaves_a_retry_alone(service: Served) -> None:
    job = await service.submit(params={"fail": "boom"}, retry={"delay": 1000, "jitter": 0})
    waiting = await service.job(job["id"])
    while waiting["attempt"] == 0 or waiting["state"] == "running":
        known = {"If-None-Match": f'"{waiting["version"]}"'}
        waiting = (await service.get(f"/v1/jobs/{job['id']}?wait=60", headers=known)).json

    patched = (await service.patch(f"/v1/jobs/{job['id']}", {"spread": HOUR})).json

    assert (patched["due_at"], patched["spread"]) == (waiting["due_at"], HOUR)


@pytest.mark.parametrize(
    ("spread", "detail"),
    [("25h", "should be less than or equal to 86400"), (-1, "negative"), ("soon", "is not a duration")],
)
async def test_spread_out_of_bounds_is_refused(service: Served, spread: object, detail: str) -> None:
    job = await service.submit(delay=1_000)

    for answer in (
        await service.post("/v1/jobs", {"kind": "echo", "spread": spread}),
        await service.patch(f"/v1/jobs/{job['id']}", {"spread": spread}),
    ):
        assert (answer.status, answer.pointers) == (422, ["/spread"])
        assert detail in answer.json["errors"][0]["detail"]


async def test_dry_submit_shows_no_instant_that_depends_on_the_id(service: Served) -> None:
    body = {"kind": "echo", "execute_at": AT, "spread": HOUR, "expires_after": 60}

    dry = (await service.post("/v1/jobs?dry_run=true", body)).json

    assert (dry["id"], dry["due_at"], dry["expires_at"]) == (None, None, None)
    assert (dry["execute_at"], dry["spread"]) == ("2026-02-01T00:00:00.000Z", HOUR)
