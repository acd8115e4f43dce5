"""compose.cluster.yaml, as it is: two nodes on one PostgreSQL behind a balancer, of which one leads."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.container.cluster import Cluster, Service
from tests.container.engines import CannotRunError, Engine
from tests.support import ROOT

MAX_TAKE_OVER = 5.0  # seconds; the machine of the test may be busy

pytestmark = [pytest.mark.real_loop, pytest.mark.timeout(600)]


@pytest.fixture
def cluster(engine: Engine, image: str, tmp_path: Path) -> Iterator[Cluster]:
    """Return the running services of the file."""
    tmp_path.chmod(0o755)
    cluster = Cluster(engine=engine, file=ROOT / "compose.cluster.yaml", folder=tmp_path, images={"erelong": image})
    try:
        for other in cluster.images():
            engine.provide(other)
        cluster.start()
        yield cluster
    except CannotRunError as reason:
        pytest.skip(f"THE CLUSTER IS NOT TESTED: {reason}")
    finally:
        cluster.close()


def test_cluster_runs_jobs_and_survives_the_end_of_its_leader(
    cluster: Cluster, figure: Callable[[str, object], None]
) -> None:
    nodes, balancer = [cluster.services["node1"], cluster.services["node2"]], cluster.services["balancer"]
    cluster.wait_until(lambda: any(node.is_ready() for node in nodes), "a node leads")
    cluster.wait_until(lambda: all(node.is_alive() for node in nodes), "both nodes are alive")
    cluster.wait_until(balancer.is_ready, "the balancer finds the leader")
    (leader,) = [node for node in nodes if node.is_ready()]
    (standby,) = [node for node in nodes if node is not leader]

    status, job = balancer.ask("POST", "/v1/jobs", {"kind": "echo", "params": {"n": 1}})
    assert status == 201
    assert balancer.ask("GET", f"/v1/jobs/{job['id']}?wait=20")[1]["state"] == "succeeded"
    waiting = balancer.ask("POST", "/v1/jobs", {"kind": "echo", "delay": "1h"})[1]["id"]

    began = time.monotonic()
    leader.kill()
    seconds = _next_submit(balancer, began)
    figure("seconds until the next submit after kill -9 of the leader", f"{seconds:.2f}")

    assert seconds < MAX_TAKE_OVER
    assert standby.is_ready()
    assert standby.ask("GET", f"/v1/jobs/{waiting}")[1]["state"] == "scheduled"
    cluster.wait_until(leader.is_alive, "the killed node is restarted")
    assert not leader.is_ready()

    began = time.monotonic()
    assert standby.stop() == 0
    figure("seconds to stop a leader", f"{time.monotonic() - began:.2f}")
    cluster.wait_until(leader.is_ready, "the first node leads again")
    assert balancer.ask("POST", "/v1/jobs", {"kind": "echo"})[0] == 201


def _next_submit(balancer: Service, began: float) -> float:
    """Return when a submit is acknowledged."""
    while balancer.ask("POST", "/v1/jobs", {"kind": "echo", "delay": "1h"})[0] != 201:
        time.sleep(0.02)
    return time.monotonic() - began
