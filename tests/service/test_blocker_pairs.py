"""Every pair of blockers that can hold one job together, made over HTTP; the others exclude each other."""

from __future__ import annotations

import asyncio
from itertools import combinations
from typing import Any

import pytest

from erelong.errors import StoreUnavailable
from erelong.model.blocker import ORDER, WORDS, Hold
from erelong.settings.kinds import KindSettings
from erelong.settings.sections import WorkersSection
from tests.support.served import Serve, Served

EXCLUSIVE = {
    (Hold.TIME, Hold.RETRY): "both mean that the job is not due: the second after an attempt, the first before any",
    (Hold.WORKER, Hold.WORKERS): "a job of a pull kind needs a worker outside, any other job one of the service",
}
PAIRS = [pair for pair in combinations(Hold, 2) if pair not in EXCLUSIVE]
LIMITS: dict[Hold, dict[str, Any]] = {
    Hold.RATE: {"rate": {"per_second": 0.001}},
    Hold.LABEL: {"label_concurrency": {"label": "tenant", "limit": 1}},
    Hold.SLOT: {"concurrency": 1},
    Hold.WORKERS: {},
}
HOLD_THE_QUEUE = {Hold.PAUSE, Hold.WORKER, *LIMITS}
"""One of these must keep the jobs ahead from starting."""
LATE = {"delay": 1_000, "factor": 1, "max_delay": 1_000, "jitter": 0}


class Stage:
    """A service on which blockers are built up one after another."""

    def __init__(self, service: Served, *holds: Hold) -> None:
        self.service = service
        self.holds = {*holds}
        self.kind: dict[str, Any] = {"kind": "resize"} if Hold.WORKER in holds else {"kind": "echo"}
        self.kind["labels"] = {"tenant": "t"}

    async def build(self) -> str:
        """Return the id of the job that all the blockers hold."""
        early = await self._submit_early()
        await self._use_up_limits()
        if Hold.PAUSE in self.holds:
            await self.service.post("/v1/queues/default/pause")
        if Hold.AHEAD in self.holds:
            await self.service.submit(priority=100, **self.kind)
        if Hold.DISK in self.holds:
            self.service.store.ails = "failed: disk I/O error; it is being reopened"
            self.service.store.broken["claim"] = StoreUnavailable("the store is being reopened")
        job = early or (await self.service.submit(**self.kind))["id"]
        await asyncio.sleep(15)
        return job

    async def _submit_early(self) -> str | None:
        if Hold.TIME in self.holds:
            return str((await self.service.submit(delay=1_000, **self.kind))["id"])
        if Hold.RETRY not in self.holds:
            return None
        job = await self.service.submit(params={"fail": "boom"}, retry=LATE, **self.kind)
        if Hold.WORKER in self.holds:
            (lease,) = (await self.service.post("/v1/leases", {"kinds": ["resize"]})).json["leases"]
            await self.service.post(f"/v1/leases/{lease['token']}/fail", {"delay": 1_000})
        await asyncio.sleep(1)
        return str(job["id"])

    async def _use_up_limits(self) -> None:
        """One running job takes the token, the label, the slot and the worker."""
        limits = [LIMITS[hold] for hold in LIMITS if hold in self.holds]
        if limits:
            await self.service.put(
                "/v1/queues/default", {name: value for limit in limits for name, value in limit.items()}
            )
            await self.service.submit_into("running", labels=self.kind["labels"])


async def stage(serve: Serve, *holds: Hold) -> Stage:
    workers = WorkersSection(concurrency=1 if Hold.WORKERS in holds else 1_000)
    return Stage(await serve(declared={"resize": KindSettings(pull=True)}, workers=workers), *holds)


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
async def test_pair_of_blockers_is_listed_in_order(serve: Serve, pair: tuple[Hold, Hold]) -> None:
    holds = {*pair}
    if Hold.AHEAD in holds and not holds & HOLD_THE_QUEUE:
        holds.add(Hold.PAUSE)
    job = await (built := await stage(serve, *holds)).build()

    answer = (await built.service.get(f"/v1/jobs/{job}/explain")).json

    types = [blocker["type"] for blocker in answer["blockers"]]
    assert types == sorted(holds, key=ORDER.__getitem__)
    words = [WORDS[hold] for hold in sorted(holds, key=ORDER.__getitem__) if hold in WORDS]
    assert (
        answer["job"]["waiting_for"] == (words[0] if words else None) == (await built.service.job(job))["waiting_for"]
    )
    assert answer["ahead"] == (Hold.AHEAD in holds)
    held = [blocker for blocker in answer["blockers"] if blocker["type"] != "ahead"]
    ends = [answer["at"], *(blocker["clears_at"] for blocker in held if blocker["clears_at"])]
    assert answer["start"]["earliest"] == (None if any(blocker["clears_by"] for blocker in held) else max(ends))


@pytest.mark.parametrize("hold", [hold for hold in Hold if hold is not Hold.AHEAD])
async def test_single_blocker_is_listed_alone(serve: Serve, hold: Hold) -> None:
    job = await (built := await stage(serve, hold)).build()

    answer = (await built.service.get(f"/v1/jobs/{job}/explain")).json

    assert [blocker["type"] for blocker in answer["blockers"]] == [hold]
    assert answer["job"]["waiting_for"] == WORDS.get(hold)


async def test_all_blockers_of_one_job_are_listed(serve: Serve) -> None:
    holds = [hold for hold in Hold if hold not in (Hold.TIME, Hold.WORKER)]
    job = await (built := await stage(serve, *holds)).build()

    answer = (await built.service.get(f"/v1/jobs/{job}/explain")).json

    assert [blocker["type"] for blocker in answer["blockers"]] == holds


def test_every_pair_is_made_or_excluded() -> None:
    assert len(PAIRS) + len(EXCLUSIVE) == len(Hold) * (len(Hold) - 1) // 2
    assert len(PAIRS) == 43
