"""A node that does not lead: it reads jobs, refuses the rest so that clients try again, and is not ready."""

from __future__ import annotations

import asyncio

import pytest
import pytest_asyncio

from erelong.api.routes import ON_STANDBY
from erelong.model.submission import NewJob
from tests.support.builders import ALL, NOW, make_job
from tests.support.following import Following
from tests.support.served import Serve, Served


@pytest_asyncio.fixture
async def standby(serve: Serve) -> Served:
    store = Following()
    await store.add([NewJob(make_job(queue="mail"))], now=NOW)
    return await serve(store=store)


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_jobs_can_be_read(standby: Served) -> None:
    (job,) = (await standby.get("/v1/jobs")).json["jobs"]

    answer = await standby.get(f"/v1/jobs/{job['id']}")

    assert answer.status == 200
    assert answer.json["queue"] == "mail"
    assert answer.json["waiting_for"] is None  # only the leader knows


async def test_wait_ends_soon_after_the_other_node_has_changed_the_job(standby: Served) -> None:
    (job,) = await standby.store.list(ALL)
    began = now()
    waiting = asyncio.create_task(standby.get(f"/v1/jobs/{job.id}?wait=30"))
    await asyncio.sleep(10)

    await standby.store.save([job.cancel(NOW, None)])

    assert (await waiting).json["state"] == "cancelled"
    assert 10 <= now() - began < 10.5
    assert standby.store.calls.count("get") < 10 / 0.25


async def test_wait_on_a_standby_ends_with_its_time_or_its_node(standby: Served) -> None:
    (job,) = await standby.store.list(ALL)
    began = now()

    answer = await standby.get(f"/v1/jobs/{job.id}?wait=10")
    over_after = now() - began
    waiting = asyncio.create_task(standby.get(f"/v1/jobs/{job.id}?wait=30"))
    await asyncio.sleep(0.1)
    standby.node.engine.drain()

    assert answer.json["state"] == "scheduled"
    assert over_after == pytest.approx(10, abs=0.1)
    assert (await waiting).json["state"] == "scheduled"
    assert now() - began < 10.3


async def test_wait_that_began_on_a_standby_reads_nothing_while_its_node_leads(standby: Served) -> None:
    assert isinstance(standby.store, Following)
    job = make_job(now=standby.node.engine.now(), delay=3_600)
    (later,) = (await standby.store.add([NewJob(job)], now=NOW)).entries
    assert later is not None
    waiting = asyncio.create_task(standby.get(f"/v1/jobs/{later.job.id}?wait=59"))
    await asyncio.sleep(1)
    standby.store.begin()
    await standby.node.lead()
    await asyncio.sleep(1)
    before = standby.store.calls.count("get")

    await asyncio.sleep(10)
    reads = standby.store.calls.count("get") - before
    await standby.post(f"/v1/jobs/{later.job.id}/cancel")

    assert reads == 0
    async with asyncio.timeout(0.2):
        assert (await waiting).json["state"] == "cancelled"


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/jobs", {"kind": "echo"}),
        ("POST", "/v1/jobs/batch", {"jobs": [{"kind": "echo"}]}),
        ("POST", "/v1/leases", {"kinds": ["mail"]}),
        ("PUT", "/v1/queues/mail", {"concurrency": 1}),
        ("GET", "/v1/queues", None),
        ("GET", "/v1/schedules", None),
        ("GET", "/v1/stats", None),
    ],
)
async def test_what_needs_the_leader_is_refused_for_a_second(
    standby: Served, method: str, path: str, body: object
) -> None:
    answer = await standby.call(method, path, body)

    assert (answer.status, answer.code) == (503, "not_leading")
    assert answer.headers["Retry-After"] == "1"
    assert "another node at 10.0.0.7 leads" in answer.json["detail"]
    assert len(await standby.store.list(ALL)) == 1


async def test_node_that_is_taking_over_takes_no_jobs_before_it_is_ready(standby: Served) -> None:
    assert isinstance(standby.store, Following)
    standby.store.begin()
    await standby.store.lead()  # the engine has not started

    answer = await standby.call("POST", "/v1/jobs", {"kind": "echo"})

    assert (answer.status, answer.code) == (503, "not_leading")
    assert "this node is taking over" in answer.json["detail"]


async def test_node_that_never_leads_says_so(serve: Serve) -> None:
    store = Following()
    store.may_lead = False
    node = await serve(store=store)

    service = (await node.get("/readyz")).json["checks"]["service"]

    assert service == "standby: another node at 10.0.0.7 leads; this node never does ([cluster] lead is false)"


async def test_standby_is_alive_and_not_ready(standby: Served) -> None:
    ready = await standby.get("/readyz")

    assert (await standby.get("/livez")).status == 200
    assert ready.status == 503
    assert ready.json["checks"]["service"].startswith("standby: another node at 10.0.0.7 leads")
    assert [name for name, state in ready.json["checks"].items() if not state.startswith("ok")] == ["service"]


async def test_every_path_that_is_answered_exists(standby: Served) -> None:
    for path in ON_STANDBY - {"/v1/jobs/{id}"}:
        assert (await standby.get(path)).status in (200, 503), path

    assert {f"GET {path}" for path in ON_STANDBY} <= {*standby.node.router.routes()}
