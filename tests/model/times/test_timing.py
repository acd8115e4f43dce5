"""The timing of a schedule: what fits together, what is refused in which field, and the defaults."""

from __future__ import annotations

from typing import Any

import pytest

from erelong.clock.zones import Zones
from erelong.model.times.cron import NEVER
from erelong.model.times.local_time import Fold, Gap
from erelong.model.times.timing import LONGEST_INTERVAL, Timing
from tests.support.recurring import at, zones
from tests.support.virtual import EPOCH

BERLIN = "Europe/Berlin"
ONLY_CRON = "applies only to cron: remove it, or write a cron for times of day"


def faults(**timing: Any) -> dict[str, str]:
    return {fault.pointer: fault.detail for fault in Timing(**timing).check(zones(), EPOCH)}


@pytest.mark.parametrize(
    "timing",
    [
        {"cron": "0 9 * * MON-FRI", "zone": BERLIN, "gap": Gap.SKIP, "fold": Fold.BOTH},
        {"cron": "0 0 29 2 *"},
        {"cron": "0 0 29 2 */7"},  # a Sunday: every 28 years
        {"cron": "30 2 * 3 7L", "zone": BERLIN},  # always in the gap, and shifted
        {"cron": "0 9 * * *", "ends_at": 0},  # over, and allowed
        {"every": 1.0},
        {"every": LONGEST_INTERVAL, "anchor": 17, "starts_at": 0, "ends_at": 1},
    ],
)
def test_timing_that_fits_together_has_no_faults(timing: dict[str, Any]) -> None:
    assert faults(**timing) == {}


@pytest.mark.parametrize(
    ("timing", "expected"),
    [
        ({}, {"/cron": "is required, or every in its place"}),
        ({"cron": "0 9 * * *", "every": 60.0}, {"/every": "cannot be combined with cron: remove one of them"}),
        ({"cron": "0 9 * * *", "anchor": 0}, {"/anchor": "applies only to every: remove it"}),
        (
            {"every": 60.0, "zone": "UTC", "gap": Gap.SHIFT, "fold": Fold.FIRST},
            {"/zone": ONLY_CRON, "/gap": ONLY_CRON, "/fold": ONLY_CRON},
        ),
        ({"every": 0.5}, {"/every": "should be from 1 s to 10 years, not 0.5"}),
        ({"every": LONGEST_INTERVAL + 1}, {"/every": "should be from 1 s to 10 years, not 315532801.0"}),
        ({"every": 60.0, "starts_at": 5, "ends_at": 5}, {"/ends_at": "should be after starts_at"}),
        (
            {"cron": "0 9 * * ?", "zone": "Berlin"},
            {"/cron": '"?" in day of week: write *', "/zone": 'no time zone "Berlin"; the closest is "Europe/Berlin"'},
        ),
        ({"cron": "0 9 30 2 *"}, {"/cron": f'"0 9 30 2 *" {NEVER}'}),
        ({"cron": "0 9 */31 * MON#2"}, {"/cron": f'"0 9 */31 * MON#2" {NEVER}'}),
        ({"cron": "30 2 * 3 7L", "zone": BERLIN, "gap": Gap.SKIP}, {"/cron": f'"30 2 * 3 7L" {NEVER}'}),
    ],
)
def test_fields_that_cannot_be_combined_are_refused(timing: dict[str, Any], expected: dict[str, str]) -> None:
    assert faults(**timing) == expected


@pytest.mark.parametrize(
    ("timing", "expected"),
    [
        ({"cron": "0 9 * * *"}, {"zone": "UTC", "gap": Gap.SHIFT, "fold": Fold.FIRST}),
        ({"cron": "*/5 9 * * *"}, {"zone": "UTC", "gap": Gap.SKIP, "fold": Fold.BOTH}),
        ({"cron": "0 */2 * * *", "zone": BERLIN}, {"zone": BERLIN, "gap": Gap.SKIP, "fold": Fold.BOTH}),
        ({"cron": "@hourly", "gap": Gap.SHIFT}, {"zone": "UTC", "gap": Gap.SHIFT, "fold": Fold.BOTH}),
        ({"cron": "@daily", "fold": Fold.SECOND}, {"zone": "UTC", "gap": Gap.SHIFT, "fold": Fold.SECOND}),
        ({"every": 60.0}, {"anchor": 0}),
        ({"every": 60.0, "anchor": 5}, {"anchor": 5}),
    ],
)
def test_defaults_replace_absent_fields(timing: dict[str, Any], expected: dict[str, Any]) -> None:
    filled = Timing(**timing).fill()

    assert filled == Timing(**{**timing, **expected})
    assert filled.fill() == filled


def test_filled_timing_recurs_as_the_one_it_was_filled_from() -> None:
    for timing in (Timing(cron="@hourly", zone=BERLIN), Timing(cron="@daily"), Timing(every=60.0)):
        assert timing.recur(zones()) == timing.fill().recur(zones())


def test_timing_that_comes_only_after_its_start_is_not_refused() -> None:
    assert faults(cron="0 0 29 2 *", starts_at=at("2032-03-01T00:00:00Z")) == {}


def test_zone_that_has_disappeared_is_an_error() -> None:
    with pytest.raises(ValueError, match="no time zone"):
        Timing(cron="@daily", zone=BERLIN).recur(Zones([]))
