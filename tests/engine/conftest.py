"""What several files of unit tests need."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.desk import Desk, running
from tests.support.virtual import VirtualClock


@pytest.fixture
async def desk(clock: VirtualClock) -> AsyncIterator[Desk]:
    """A scheduler at work."""
    async with running(Desk(clock=clock)) as desk:
        yield desk
