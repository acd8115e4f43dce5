"""A stream gives the same lines for any chunk boundaries."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any, cast

from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from erelong.settings.sections import LimitsSection
from erelong.web.body import Bodies

LIMIT = 6

BODIES = st.lists(st.sampled_from([b"a", b"\n", b"\r\n", b"bcd", b"\n\n", b"x" * LIMIT, b"y" * (LIMIT + 1)])).map(
    b"".join
)


class Chunks:
    """A request, and its `content`, whose body comes in the chunks of the test."""

    def __init__(self, chunks: list[bytes]) -> None:
        self.content = self
        self._chunks = chunks

    def at_eof(self) -> bool:
        return not self._chunks

    async def readany(self) -> bytes:
        return self._chunks.pop(0)


def expected(body: bytes) -> list[bytes | None]:
    *lines, rest = body.split(b"\n")
    return [line if len(line) <= LIMIT else None for line in [*lines, *([rest] if rest.strip() else [])]]


@given(BODIES, st.lists(st.integers(0, 40)))
def test_chunk_boundaries_make_no_difference(body: bytes, cuts: list[int]) -> None:
    edges = [0, *sorted(min(cut, len(body)) for cut in cuts), len(body)]
    chunks = Chunks([body[start:end] for start, end in pairwise(edges)])
    lines = Bodies(limits=LimitsSection(max_body=LIMIT), timeout=10.0).lines(cast("web.Request", chunks))

    assert asyncio.run(_collected(lines)) == expected(body)


async def _collected(groups: AsyncIterator[list[bytes | None]]) -> list[Any]:
    return [line async for group in groups for line in group]
