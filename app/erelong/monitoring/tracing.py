"""OpenTelemetry traces of requests and attempts. An extra, loaded only if an endpoint is configured."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from aiohttp import web

from erelong.handlers.base import AttemptFailed, Result, Runner, current_traceparent
from erelong.handlers.kinds import Kind, Kinds
from erelong.model.extras import read_extras
from erelong.settings.section import ConfigError
from erelong.telemetry.redact import redacted
from erelong.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Link, Span, SpanContext

    from erelong.model.job import Job

ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
MAX_ORIGINS: Final = 10_000  # submit requests kept for links from attempts
FLUSH_TIME: Final = 0.5  # seconds: a collector that does not answer must not delay the shutdown


class Response(Protocol):
    """The parts of a response that a span records."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...


R = TypeVar("R", bound=Response)


def make_tracing(env: Mapping[str, str]) -> Tracing | None:
    """Return tracing as OpenTelemetry's own variables configure it, or None if they name no endpoint."""
    variable = next((name for name in ENDPOINTS if env.get(name)), None)
    if variable is None or env.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        remedy = "pip install 'erelong[otel]', or remove the variable (or set OTEL_SDK_DISABLED=true)"
        raise ConfigError([f"{variable} enables traces, but {error.name} is not installed: {remedy}"]) from None
    about = {"service.name": env.get("OTEL_SERVICE_NAME") or "erelong", "service.version": VERSION}
    provider = TracerProvider(resource=Resource.create(about), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return Tracing(provider=provider)


class Tracing:
    """Makes spans for requests under `/v1/` and for attempts that run here. An attempt is linked to the request that
    submitted its job while this process remembers the request. The attempt has its own trace, since the request may be
    days old.
    """

    def __init__(self, *, provider: TracerProvider) -> None:
        from opentelemetry import trace
        from opentelemetry.context import Context
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._provider = provider
        self._otel = trace
        self._root = Context()
        self._tracer = provider.get_tracer("erelong", VERSION)
        self._propagator = TraceContextTextMapPropagator()
        self._origins: dict[str, SpanContext] = {}

    def wrap(self, kinds: Kinds) -> Kinds:
        """Return the same kinds with a span around each attempt. Those of pull kinds do not run here: see `lease`."""
        wrapped = (kind if kind.runner is None else self._wrapped(kind, kind.runner) for kind in kinds.values())
        return Kinds(*wrapped, tracer=self)

    def _wrapped(self, kind: Kind, runner: Runner) -> Kind:
        return replace(kind, runner=TracedRunner(kind=kind, runner=runner, tracing=self))

    def close(self) -> None:
        """Send the remaining spans, for at most `FLUSH_TIME`."""
        thread = threading.Thread(target=self._provider.shutdown, name="tracing", daemon=True)
        thread.start()
        thread.join(FLUSH_TIME)

    async def trace(self, request: web.Request, route: str, handler: Callable[[web.Request], Awaitable[R]]) -> R:
        """Answer a request within a span."""
        if not route.startswith("/v1/"):
            return await handler(request)
        path = redacted(request.path)
        about = {"http.request.method": request.method, "http.route": route, "url.path": path}
        with self._tracer.start_as_current_span(
            f"{request.method} {route}",
            context=self._propagator.extract(request.headers),
            kind=self._otel.SpanKind.SERVER,
            attributes=about,
        ) as span:
            response = await handler(request)
            self._record_response(span, response)
            return response

    def _record_response(self, span: Span, response: Response) -> None:
        span.set_attribute("http.response.status_code", response.status)
        span.set_attribute("erelong.request", response.headers.get("X-Request-Id", ""))
        if response.status >= 500:
            span.set_status(self._otel.StatusCode.ERROR)
        location = response.headers.get("Location")
        if location is not None and response.status == 201:
            id = location.rpartition("/")[2]
            span.set_attribute("erelong.job", id)
            if len(self._origins) >= MAX_ORIGINS:
                del self._origins[next(iter(self._origins))]
            self._origins[id] = span.get_span_context()

    async def run(self, kind: Kind, runner: Runner, job: Job) -> bytes | Result | None:
        """Run an attempt within a span. Handlers and HTTP receivers may continue its trace."""
        with self._tracer.start_as_current_span(
            f"run {job.kind}",
            kind=self._otel.SpanKind.CLIENT if kind.type == "http" else self._otel.SpanKind.CONSUMER,
            links=self._links(job),
            attributes=_attributes(job),
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            token = current_traceparent.set(_traceparent(span))
            try:
                return await runner.run(job)
            except BaseException as error:
                reason = error.type if isinstance(error, AttemptFailed) else type(error).__name__
                span.set_status(self._otel.StatusCode.ERROR, reason)
                raise
            finally:
                current_traceparent.reset(token)

    def lease(self, job: Job) -> str:
        """Record that a worker received a job, in a span that ends at once; the worker may continue its trace."""
        worker = read_extras(job.extras).get("worker")
        span = self._tracer.start_span(
            f"lease {job.kind}",
            context=self._root,
            kind=self._otel.SpanKind.PRODUCER,
            links=self._links(job),
            attributes=_attributes(job) | ({} if worker is None else {"erelong.worker": worker}),
        )
        span.end()
        return _traceparent(span)

    def _links(self, job: Job) -> list[Link]:
        """Return a link to the request that submitted a job, if it is known."""
        origin = self._origins.get(job.id)
        return [self._otel.Link(origin)] if origin else []


class TracedRunner:
    """A runner that puts a span around each attempt."""

    def __init__(self, *, kind: Kind, runner: Runner, tracing: Tracing) -> None:
        self._kind = kind
        self._runner = runner
        self._tracing = tracing
        self.open, self.close = runner.open, runner.close

    @property
    def abandoned(self) -> int:
        return self._runner.abandoned

    async def run(self, job: Job) -> bytes | Result | None:
        return await self._tracing.run(self._kind, self._runner, job)


def _attributes(job: Job) -> dict[str, str | int | float]:
    return {
        "erelong.job": job.id,
        "erelong.kind": job.kind,
        "erelong.queue": job.queue,
        "erelong.attempt": job.attempt,
        "erelong.late_by": job.late_by or 0.0,
    }


def _traceparent(span: Span) -> str:
    context = span.get_span_context()
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
