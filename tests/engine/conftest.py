"""Fixtures for the engine tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.desk import Desk, running
from tests.support.virtual import VirtualClock


@pytest.fixture
async def desk(clock: VirtualClock) -> AsyncIterator[Desk]:
    """A running scheduler."""
    async with running(Desk(clock=clock)) as desk:
        yield desk
