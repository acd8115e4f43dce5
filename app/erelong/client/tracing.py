"""Traces of OpenTelemetry, if the program has loaded it: this imports nothing of it."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from erelong.client.requests import Request, with_headers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from erelong.attempt import Attempt


def current_traceparent() -> str | None:
    """Return the header that continues the current trace in the service; None without one."""
    trace: Any = sys.modules.get("opentelemetry.trace")
    context = None if trace is None else trace.get_current_span().get_span_context()
    if context is None or not context.is_valid:
        return None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def with_trace(request: Request) -> Request:
    """Return a request that continues the current trace, if there is one."""
    traceparent = current_traceparent()
    return request if traceparent is None else with_headers(request, traceparent=traceparent)


@contextmanager
def attempt_span(attempt: Attempt) -> Iterator[None]:
    """Run an attempt in a span that continues the trace of its lease. An exception marks the span as failed."""
    trace: Any = sys.modules.get("opentelemetry.trace")
    if trace is None:
        yield
        return
    about = {"erelong.job": attempt.id, "erelong.kind": attempt.kind, "erelong.queue": attempt.queue}
    with trace.get_tracer("erelong").start_as_current_span(
        f"work {attempt.kind}",
        context=_context(trace, attempt.traceparent),
        kind=trace.SpanKind.CONSUMER,
        attributes={**about, "erelong.attempt": attempt.number},
    ):
        yield


def _context(trace: Any, traceparent: str | None) -> Any:
    """Return a context in the trace of a lease; None, the current one, if it is not traced."""
    parts = (traceparent or "").split("-")
    if len(parts) != 4:
        return None
    trace_id, span_id, flags = (int(part, 16) for part in parts[1:])
    parent = trace.SpanContext(trace_id, span_id, is_remote=True, trace_flags=trace.TraceFlags(flags))
    return trace.set_span_in_context(trace.NonRecordingSpan(parent))
