"""Traces of OpenTelemetry go through the client and the worker, if the program has loaded it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from erelong import AsyncClient, Attempt, GiveUp, Worker
from erelong.client.tracing import attempt_span, current_traceparent
from erelong.monitoring.tracing import Tracing
from erelong.settings.kinds import KindSettings
from tests.support import SOURCE
from tests.support.served import Serve, Served

ATTEMPT = Attempt(1, "t", "k", "q", 1, 0, 0, 60.0)


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """The spans of this process, of which the service makes some and the worker others."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    yield exporter
    provider.shutdown()


@pytest_asyncio.fixture
async def service(serve: Serve, exporter: InMemorySpanExporter) -> Served:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    declared = {name: KindSettings(pull=True) for name in ("a", "b")}
    return await serve(declared=declared, tracing=Tracing(provider=provider))


@pytest_asyncio.fixture
async def worker(client: AsyncClient) -> AsyncIterator[Worker]:
    worker = Worker()

    @worker.kind("a")
    async def on_loop(n: int) -> str | None:
        return current_traceparent()

    @worker.kind("b", retry={"max_attempts": 1})
    def in_thread(n: int) -> str | None:
        if n == 0:
            raise GiveUp("no")
        return current_traceparent()

    serving = asyncio.create_task(worker.serve(client))
    yield worker
    worker.stop()
    await serving


async def test_requests_continue_the_current_trace(client: AsyncClient, exporter: InMemorySpanExporter) -> None:
    with trace.get_tracer("test").start_as_current_span("order") as span:
        await client.submit("echo", delay=60)
    await client.me()

    requests = {found.name: found for found in exporter.get_finished_spans() if found.name != "order"}
    assert requests["POST /v1/jobs"].context.trace_id == span.get_span_context().trace_id
    assert requests["GET /v1/me"].context.trace_id != span.get_span_context().trace_id


@pytest.mark.parametrize("kind", ["a", "b"])
async def test_attempts_continue_the_trace_of_their_lease(
    client: AsyncClient, worker: Worker, exporter: InMemorySpanExporter, kind: str
) -> None:
    job = await client.submit(kind, {"n": 1})
    traceparent = await job.result()

    (lease,) = (span for span in exporter.get_finished_spans() if span.name == f"lease {kind}")
    (work,) = (span for span in exporter.get_finished_spans() if span.name == f"work {kind}")
    assert work.parent is not None
    assert (work.context.trace_id, work.parent.span_id) == (lease.context.trace_id, lease.context.span_id)
    assert traceparent is not None
    assert traceparent.startswith(f"00-{work.context.trace_id:032x}-{work.context.span_id:016x}-")
    assert work.attributes is not None
    assert work.attributes["erelong.job"] == job.id


async def test_failed_attempt_is_a_failed_span(
    client: AsyncClient, worker: Worker, exporter: InMemorySpanExporter
) -> None:
    await (await client.submit("b", {"n": 0})).wait()

    (work,) = (span for span in exporter.get_finished_spans() if span.name == "work b")
    assert work.status.status_code is StatusCode.ERROR


@pytest.mark.parametrize("traceparent", [None, "nonsense"])
def test_attempt_without_a_trace_begins_one(exporter: InMemorySpanExporter, traceparent: str | None) -> None:
    with attempt_span(ATTEMPT._replace(traceparent=traceparent)):
        pass

    (span,) = exporter.get_finished_spans()
    assert span.parent is None


def test_without_opentelemetry_nothing_is_loaded() -> None:
    script = (
        "import sys; from erelong import Attempt, Client\n"
        "from erelong.client.tracing import attempt_span, current_traceparent\n"
        "with attempt_span(Attempt(1, 't', 'k', 'q', 1, 0, 0, 60.0)): print(current_traceparent())\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    command = [sys.executable, "-c", script]
    ended = subprocess.run(command, env={"PYTHONPATH": str(SOURCE)}, capture_output=True, text=True)

    assert ended.stdout == "None\n[]\n", ended.stderr
