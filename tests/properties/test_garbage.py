"""Any input gets a true 2xx or a 4xx with its reason, never a 5xx."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from erelong.api.schemas import JobIn, PatchIn
from erelong.api.shapes.queries import ListIn
from erelong.settings.queues import QueueSettings
from tests.support.examples import examples
from tests.support.served import Served
from tests.support.virtual import VirtualClock, VirtualLoop

WORDS = [
    "echo",
    "http",
    "default",
    "k",
    "keep",
    "scheduled",
    "due_at",
    "url",
    "sleep",
    "max_attempts",
    "tenant",
    "full",
]
TEXTS = st.sampled_from([*WORDS, "5m", "PT1H", "-1", "1e999", "2026-02-01T00:00:00Z", "", " ", "\x00", "ü", "a" * 300])
NUMBERS = st.integers(-(2**63), 2**64 - 1) | st.integers(-2, 101) | st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.none() | st.booleans() | NUMBERS | TEXTS | st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4), max_leaves=8
)
RETRIES = st.dictionaries(st.sampled_from(["max_attempts", "delay", "factor", "max_delay", "jitter"]), VALUES)


def bodies(model: type[Any]) -> st.SearchStrategy[Any]:
    """Return bodies with known names and invalid values."""
    known = getattr(model, "model_fields", model.__annotations__)
    names = st.sampled_from([*known, "nonsense"])
    fields = st.dictionaries(names, VALUES, max_size=5)
    likely = st.fixed_dictionaries({}, optional={"kind": st.sampled_from(WORDS), "retry": RETRIES, "delay": NUMBERS})
    return st.builds(lambda a, b: {**a, **b}, fields, likely) | VALUES


@contextmanager
def serving() -> Iterator[Callable[[Callable[[Served], Awaitable[Any]]], Any]]:
    """Run one service for many examples; yield a function that sends requests to it."""

    async def start() -> Served:
        clock = VirtualClock(loop=asyncio.get_running_loop())  # type: ignore[arg-type]  # the runner's, as below
        return await Served(clock=clock).__aenter__()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        service = runner.run(start())

        async def ask(question: Callable[[Served], Awaitable[Any]]) -> Any:
            return await question(service)

        yield lambda question: runner.run(ask(question))
        runner.run(service.__aexit__())


def test_no_submit_body_causes_a_server_error() -> None:
    with serving() as ask:

        @settings(max_examples=examples(200))
        @given(bodies(JobIn))
        def submit(body: Any) -> None:
            answer = ask(lambda service: service.post("/v1/jobs", data=orjson.dumps(body)))
            assert answer.status in (200, 201, 400, 409, 422), answer.body

        submit()


def test_no_bytes_cause_a_server_error() -> None:
    with serving() as ask:

        @settings(max_examples=examples(100))
        @given(st.binary(max_size=50), st.sampled_from(["/v1/jobs", "/v1/jobs/batch"]))
        def submit(body: bytes, path: str) -> None:
            answer = ask(lambda service: service.post(path, data=body))
            assert answer.status in (400, 422), answer.body

        submit()


def test_no_change_of_a_job_causes_a_server_error() -> None:
    with serving() as ask:
        job = ask(lambda service: service.submit(delay=1_000))

        @settings(max_examples=examples(150))
        @given(bodies(PatchIn))
        def patch(body: Any) -> None:
            answer = ask(lambda service: service.patch(f"/v1/jobs/{job['id']}", data=orjson.dumps(body)))
            assert answer.status in (200, 400, 409, 422), answer.body

        patch()


def test_no_queue_settings_cause_a_server_error() -> None:
    with serving() as ask:

        @settings(max_examples=examples(100))
        @given(bodies(QueueSettings))
        def put(body: Any) -> None:
            answer = ask(lambda service: service.put("/v1/queues/mail", data=orjson.dumps(body)))
            assert answer.status in (200, 400, 422), answer.body

        put()


def test_no_query_causes_a_server_error() -> None:
    names = st.sampled_from([*ListIn.model_fields, "label.tenant", "label.", "nonsense"]) | TEXTS
    pairs = st.lists(st.tuples(names, SCALARS.map(str)), max_size=5)

    with serving() as ask:
        ask(lambda service: service.submit(delay=1_000, labels={"tenant": "1"}))

        @settings(max_examples=examples(200))
        @given(pairs)
        def query(pairs: list[tuple[str, str]]) -> None:
            text = "&".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in pairs)
            answer = ask(lambda service: service.get(f"/v1/jobs?{text}"))
            assert answer.status in (200, 400, 422), answer.body

        query()
