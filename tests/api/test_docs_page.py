"""`/docs`: one page without external assets, confined to this service."""

from __future__ import annotations

import base64
import re
from hashlib import sha256

import pytest

from erelong.api.shapes.examples import EXAMPLES
from tests.support.served import Serve, Served
from tests.support.virtual import EPOCH


async def test_policy_of_the_page_allows_only_its_own_script_and_style(service: Served) -> None:
    answer = await service.get("/docs")

    policy = dict(part.split(" ", 1) for part in answer.headers["Content-Security-Policy"].split("; "))
    assert (answer.status, answer.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert policy["default-src"] == "'none'"
    assert policy["connect-src"] == "'self'"
    assert not any("unsafe" in sources or "http" in sources or "*" in sources for sources in policy.values())
    for tag in ("script", "style"):
        (text,) = re.findall(rf"<{tag}>(.*?)</{tag}>".encode(), answer.body, re.DOTALL)
        assert policy[f"{tag}-src"] == f"'sha256-{base64.b64encode(sha256(text).digest()).decode()}'"


async def test_page_names_no_external_address(service: Served) -> None:
    page = (await service.get("/docs")).body.decode()

    assert "//" not in re.sub(r"(?m)^\s*// .*$", "", page)  # no URL of any form
    assert re.findall(r"(?:src|href|action)=\"([^\"]*)\"", page) == ["data:,", "openapi.json"]
    assert "innerHTML" not in page
    assert "localStorage" not in page
    assert " style=" not in page


async def test_page_accepts_any_query_parameter(service: Served) -> None:
    assert (await service.get("/docs?from=mail")).status == 200


@pytest.mark.parametrize("name", [*EXAMPLES])
async def test_example_of_each_body_matches_its_schema(serve: Serve, name: str) -> None:
    service = await serve(virtual_from=EPOCH)
    schemas = (await service.get("/openapi.json")).json["components"]["schemas"]

    assert [*service._contract.faults(EXAMPLES[name], schemas[name])] == []


async def test_service_accepts_the_examples(service: Served) -> None:
    job = (await service.post("/v1/jobs", EXAMPLES["JobIn"])).json

    assert (await service.patch(f"/v1/jobs/{job['id']}", EXAMPLES["PatchIn"])).status == 200
    assert (await service.post(f"/v1/jobs/{job['id']}/cancel", EXAMPLES["CancelIn"])).status == 200
    assert (await service.post("/v1/jobs/batch", EXAMPLES["BatchIn"])).status == 201
    assert (await service.put("/v1/queues/mail", EXAMPLES["QueueSettings"])).status == 200


async def test_every_call_with_a_body_shows_an_example(service: Served) -> None:
    paths = (await service.get("/openapi.json")).json["paths"]
    bodies = [
        body
        for item in paths.values()
        for operation in item.values()
        if "requestBody" in operation
        for body in operation["requestBody"]["content"].values()
    ]

    assert bodies
    assert all("example" in body for body in bodies)
