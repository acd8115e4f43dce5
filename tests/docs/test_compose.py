"""The compose files: their settings are valid, and the nodes of a cluster run as a single service does."""

from __future__ import annotations

from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # PyYAML has no annotations

from erelong.settings.load import load
from tests.support import ROOT

OF_ONE = {"ports", "volumes"}  # a node has neither a port of its own nor data
OF_NODES = {"depends_on"}


def services(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / name).read_text())["services"]
    return found


@pytest.mark.parametrize(("file", "name"), [("compose.yaml", "erelong"), ("compose.cluster.yaml", "node1")])
def test_settings_are_valid(file: str, name: str) -> None:
    assert load(None, services(file)[name]["environment"]).auth.allow_anonymous


def test_nodes_of_a_cluster_run_as_a_single_service_does() -> None:
    one, cluster = services("compose.yaml")["erelong"], services("compose.cluster.yaml")
    node = cluster["node1"]

    assert node == cluster["node2"]
    assert node.keys() - OF_NODES == one.keys() - OF_ONE
    for name in node.keys() - OF_NODES - {"environment"}:
        assert node[name] == one[name], name


def test_balancer_probes_readiness_of_every_node() -> None:
    text = yaml.safe_load((ROOT / "compose.cluster.yaml").read_text())["configs"]["balancer"]["content"]

    assert "httpchk GET /readyz" in text
    for node in ("node1", "node2"):
        assert f"server {node} {node}:8080" in text
