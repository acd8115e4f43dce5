"""Traces: a span for each request and each attempt, linked. Without an endpoint there is none."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from erelong.attempt import Attempt
from erelong.handlers.base import AttemptFailed
from erelong.monitoring import tracing as tracing_module
from erelong.monitoring.tracing import Tracing, make_tracing
from erelong.settings.kinds import KindSettings
from erelong.settings.section import ConfigError
from tests.support import SOURCE
from tests.support.kinds import FakeRunner, for_ever
from tests.support.served import Served
from tests.support.virtual import VirtualClock

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}
ONCE = {"max_attempts": 1}


class Traced:
    """A service under tracing; its kind "work" does what `handler` does."""

    def __init__(self, *, clock: VirtualClock) -> None:
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracing = Tracing(provider=provider)
        self.handler = FakeRunner()
        self.service = Served(
            clock=clock,
            kinds={"work": self.handler},
            declared={"pulled": KindSettings(pull=True)},
            tracing=self.tracing,
        )

    async def run(self, **fields: object) -> dict[str, object]:
        job = await self.service.submit(kind="work", retry=ONCE, **fields)
        return await self.service.until(job["id"], "succeeded", "failed")

    def spans(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    def span(self, name: str) -> ReadableSpan:
        (span,) = self.spans(name)
        return span


@pytest_asyncio.fixture
async def traced(clock: VirtualClock) -> AsyncIterator[Traced]:
    traced = Traced(clock=clock)
    async with traced.service:
        yield traced


async def test_request_continues_the_trace_of_its_client(traced: Traced) -> None:
    headers = {"traceparent": f"00-{TRACE}-{PARENT}-01", "X-Request-Id": "r1"}
    answer = await traced.service.post("/v1/jobs", {"kind": "echo", "delay": 60}, headers=headers)

    span = traced.span("POST /v1/jobs")
    assert span.context is not None
    assert span.parent is not None
    assert f"{span.context.trace_id:032x}" == TRACE
    assert f"{span.parent.span_id:016x}" == PARENT
    assert span.kind is SpanKind.SERVER
    assert dict(span.attributes or {}) == {
        "http.request.method": "POST",
        "http.route": "/v1/jobs",
        "url.path": "/v1/jobs",
        "http.response.status_code": 201,
        "erelong.request": "r1",
        "erelong.job": answer.json["id"],
    }


async def test_token_of_a_lease_is_in_no_span(traced: Traced) -> None:
    token = f"{7:010x}{'5ec7e7' * 5}00"

    for method, path in (("POST", f"/v1/leases/{token}/extend"), ("GET", f"/v1/leases/{token}/extend")):
        await traced.service.call(method, path)

    paths = {str((span.attributes or {})["url.path"]) for span in traced.exporter.get_finished_spans()}
    assert paths == {"/v1/leases/0000000007…/extend"}


async def test_attempt_has_its_own_trace_linked_to_the_submit(traced: Traced) -> None:
    job = await traced.run()

    submit, attempt = traced.span("POST /v1/jobs"), traced.span("run work")
    assert submit.context is not None
    assert attempt.context is not None
    assert [link.context.span_id for link in attempt.links] == [submit.context.span_id]
    assert attempt.parent is None
    assert attempt.attributes is not None
    assert (attempt.attributes["erelong.job"], attempt.attributes["erelong.attempt"]) == (job["id"], 1)
    (seen,) = traced.handler.attempts
    assert seen.traceparent is not None
    assert seen.traceparent.startswith(f"00-{attempt.context.trace_id:032x}-{attempt.context.span_id:016x}-")


@pytest.mark.parametrize(
    ("error", "description"),
    [(RuntimeError("canary"), "RuntimeError"), (AttemptFailed("http_status", "canary"), "http_status")],
)
async def test_failed_attempt_is_an_error_without_its_message(
    traced: Traced, error: Exception, description: str
) -> None:
    async def fail(_: Attempt) -> None:
        raise error

    traced.handler.work = fail
    job = await traced.run()

    span = traced.span("run work")
    assert job["state"] == "failed"
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, description)
    assert "canary" not in span.to_json()


async def test_stopped_attempt_ends_its_span(traced: Traced) -> None:
    traced.handler.work = for_ever

    job = await traced.run(timeout=1)

    assert job["state"] == "failed"
    assert traced.span("run work").status.description == "CancelledError"


async def test_submits_are_remembered_up_to_a_bound(traced: Traced, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing_module, "MAX_ORIGINS", 2)

    for _ in range(5):
        await traced.run()

    assert len(traced.tracing._origins) == 2
    assert all(span.links for span in traced.spans("run work"))


async def test_probes_and_client_errors_are_not_span_errors(traced: Traced) -> None:
    await traced.service.get("/livez")
    await traced.service.get("/v1/jobs/none")
    await traced.service.get("/none")

    (span,) = traced.exporter.get_finished_spans()
    assert (span.name, span.status.status_code) == ("GET /v1/jobs/{id}", StatusCode.UNSET)


async def test_lease_carries_the_trace_of_its_attempt(traced: Traced) -> None:
    job = await traced.service.submit(kind="pulled")

    answer = await traced.service.post("/v1/leases", {"kinds": ["pulled"], "worker": "host-1"})

    (lease,) = answer.json["leases"]
    submit, span = traced.span("POST /v1/jobs"), traced.span("lease pulled")
    assert span.context is not None
    assert submit.context is not None
    assert lease["traceparent"].startswith(f"00-{span.context.trace_id:032x}-{span.context.span_id:016x}-")
    assert (span.parent, span.kind) == (None, SpanKind.PRODUCER)
    assert [link.context.span_id for link in span.links] == [submit.context.span_id]
    assert span.attributes is not None
    assert (span.attributes["erelong.job"], span.attributes["erelong.worker"]) == (job["id"], "host-1")


# configuration


@pytest.mark.parametrize("env", [{}, {"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, ENDPOINT | {"OTEL_SDK_DISABLED": "true"}])
def test_without_an_endpoint_there_are_no_traces(env: dict[str, str]) -> None:
    assert make_tracing(env) is None


def test_endpoint_without_the_extra_is_refused_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)

    with pytest.raises(ConfigError, match=r"ENDPOINT enables traces.*pip install 'erelong\[otel\]'"):
        make_tracing(ENDPOINT)


def test_opentelemetry_is_loaded_only_if_configured() -> None:
    script = "import sys, erelong.main; sys.exit('opentelemetry' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", script], cwd=SOURCE, check=False, timeout=20).returncode == 0
