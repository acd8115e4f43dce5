"""The resources of a service do not grow under a long mixed load."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.process import HAS_PROC, ServiceProcess
from tests.system.book import install
from tests.system.soak import soak
from tests.system.soak_load import CONFIG
from tests.system.trials import IS_FULL, sized

SECONDS, WARM_UP, PAUSE = sized((5.0, 2.0, 0.2), (900.0, 180.0, 2.0))
SHARE = sized(1.0, 0.05)  # maximum growth, as a share of the mean
AT_LEAST = {
    "rss_mib": 4.0,  # allocations at random times fragment the heap
    "descriptors": 10.0,
    "threads": 8.0,  # a pool keeps the most it ever used at once
    "wal_mib": 1.0,
    "database_mib": 1.0,
    "agenda": 100_000.0,  # the agenda drops stale entries at this number
    "series": 200.0,  # of queues used once, which are dropped after five minutes
    "jobs": 300.0,
}

pytestmark = [pytest.mark.real_loop, pytest.mark.timeout(sized(40, 1_000))]


@pytest.mark.skipif(not HAS_PROC, reason="what a process uses is read from /proc")
async def test_no_resource_grows_under_a_long_mixed_load(
    make_service: Callable[..., ServiceProcess], figure: Callable[[str, object], None]
) -> None:
    service = make_service(config=CONFIG)
    install(service)
    service.start()

    soaked = await soak(service, seconds=SECONDS, warm_up=WARM_UP, pause=PAUSE)

    for line in soaked.table():
        figure("soak", line)
    grown = {
        name: trend
        for name, trend in soaked.trends.items()
        if trend.growth > max(SHARE * trend.mean, AT_LEAST[name] * sized(4.0, 1.0))
    }
    assert grown == {}
    assert [status for status in soaked.answers if status >= 500] == []
    assert service.errors() == []
    assert soaked.submitted > (50_000 if IS_FULL else 100)
