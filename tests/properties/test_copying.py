"""A store that is copied to the other database, and back, continues to behave like the memory store."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from erelong.stores.memory import MemoryStore
from tests.properties.test_stores import STEPS, Step, Twins, compare_contents
from tests.support.copied import Place, copy_between
from tests.support.examples import examples
from tests.support.postgres import PostgresServer

WALKS = st.tuples(*[st.lists(STEPS, min_size=5, max_size=20) for _ in range(3)])


def test_copies_in_both_directions_continue_like_the_memory_store(postgres_server: PostgresServer) -> None:
    database = Place(url=postgres_server.make_database("copies"))

    with asyncio.Runner() as runner:

        @given(WALKS)
        @settings(max_examples=examples(30), deadline=None)
        def check(walks: tuple[list[Step], ...]) -> None:
            postgres_server.drop("copies")
            with tempfile.TemporaryDirectory() as folder:
                first, last = Place(path=Path(folder) / "first.db"), Place(path=Path(folder) / "last.db")
                runner.run(_walk((first, database, last), walks))

        check()


async def _walk(places: tuple[Place, ...], walks: tuple[list[Step], ...]) -> None:
    """Walk on a store, copy it, and continue on the copy."""
    twins: Twins | None = None
    for number, (place, steps) in enumerate(zip(places, walks, strict=True)):
        if number:
            await asyncio.to_thread(copy_between, places[number - 1], place)
        async with place.opened() as store:
            twins = Twins(memory=MemoryStore(), other=store) if twins is None else twins
            twins.other = store
            await compare_contents(twins)
            for step in steps:
                await step(twins)
            await compare_contents(twins)
