"""Recurrences find what walking through every minute, or second, of the zone finds."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice, product
from random import Random

import pytest

from erelong.clock.instants import SECOND
from erelong.clock.zones import Zones, load_zones
from erelong.model.times.cron import parse_cron
from erelong.model.times.local_time import Fold, Gap
from erelong.model.times.recurrence import Recurrence, WallClock
from tests.support.examples import examples
from tests.support.walked import Change, Spec, changes, draw_days, draw_spec, local_at, ticks, walk
from tests.system.trials import sized

ZONES = (
    "UTC",
    "Africa/Casablanca",  # puts clocks back for Ramadan, by a table of dates
    "America/Havana",  # at midnight
    "America/New_York",
    "America/Santiago",  # of the south, at midnight: a day begins at 01:00
    "America/St_Johns",  # at one minute past midnight until 2011
    "Asia/Kolkata",  # never
    "Asia/Tehran",  # until 2022
    "Australia/Lord_Howe",  # by half an hour
    "Europe/Berlin",
    "Europe/Dublin",  # summer is the standard there, winter the exception
    "Pacific/Apia",  # left out the 30th of December 2011
)
POLICIES = tuple(product(Gap, Fold))
COUNTED = examples(sized(300, 30_000))  # occurrences for each zone, and no more of them by one cron than:
DENSEST = sized(150, 600)


@pytest.fixture(scope="module")
def zones() -> Zones:
    return load_zones(os.environ)


def make_recurrence(spec: Spec, zones: Zones, name: str, gap: Gap, fold: Fold) -> Recurrence:
    rhythm = WallClock(cron=parse_cron(spec.text), zone=zones.find(name), gap=gap, fold=fold)
    return Recurrence(rhythm=rhythm)


def windows(random: Random, zones: Zones, name: str) -> Iterator[tuple[Change, int, int, int]]:
    """Draw changes of a zone, with a stretch of time around each and how finely to walk through it."""
    zone = zones.find(name)
    found = [change for change in changes(zone, 2005, 2034) if change.width]
    while True:
        change = random.choice(found) if found else Change(random.randint(1_200_000_000, 2_000_000_000), 3600)
        is_fine = random.random() < 0.3 and change.width <= 3600
        reach = change.width + 1800 if is_fine else change.width + 12 * 3600
        step = 1 if is_fine else 60
        yield change, (change.at - reach) // 60 * 60, (change.at + reach) // 60 * 60, step


def draw_cases(
    random: Random, zones: Zones, name: str
) -> Iterator[tuple[Spec, int, int, dict[tuple[Gap, Fold], dict[int, str | None]]]]:
    """Draw crons that come near a change, with what each pair of policies makes of them."""
    zone = zones.find(name)
    for change, first, last, step in windows(random, zones, name):
        beside = (change.width + 3600) // 60 * 60
        walked = ticks(zone, first - beside, last + beside, step)
        hours = [local_at(change.at + second, zone).hour for second in (-1800, 0, 1800, change.width)]
        for _ in range(4):
            spec = draw_spec(random, hours, has_seconds=step == 1)
            found = {policy: walk(walked, spec.matches, *policy) for policy in POLICIES}
            if max(map(len, found.values())) > DENSEST:
                continue
            yield (
                spec,
                first,
                last,
                {
                    policy: {second: note for second, note in times.items() if first <= second < last}
                    for policy, times in found.items()
                },
            )


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ZONES)
def test_recurrence_finds_what_a_walk_through_every_minute_finds(zones: Zones, name: str) -> None:
    random = Random(name)
    left = COUNTED
    for spec, first, last, found in draw_cases(random, zones, name):
        for (gap, fold), times in found.items():
            recurrence = make_recurrence(spec, zones, name, gap, fold)
            previews = islice(recurrence.preview(first * SECOND - 1), len(times))
            bounds = (first * SECOND, last * SECOND)

            context = f"{spec.text!r} in {name}, {gap}, {fold}, from {datetime.fromtimestamp(first, UTC)}"
            assert [*recurrence.between(*bounds)] == [second * SECOND for second in times], context
            assert [entry.note for entry in previews] == [*times.values()], context
            assert [*recurrence.latest(*bounds)] == [second * SECOND for second in reversed(times)], context
            for start in random.sample([*times], min(3, len(times))):
                expected = [second * SECOND for second in times if second > start][:5]
                assert [*islice(recurrence.after(start * SECOND), len(expected))] == expected, context
            left -= len(times)
        if left <= 0:
            return


@pytest.mark.timeout(600)
def test_days_of_a_cron_are_those_that_the_calendar_says(zones: Zones) -> None:
    random = Random(20)
    for _ in range(examples(sized(15, 300))):
        name = random.choice(ZONES)
        (of_month, of_week), is_day = draw_days(random)
        recurrence = Recurrence(
            rhythm=WallClock(
                cron=parse_cron(f"34 12 {of_month} * {of_week}"), zone=zones.find(name), gap=Gap.SHIFT, fold=Fold.FIRST
            )
        )
        noons = [datetime(2012, 1, 1, 12, 34, tzinfo=zones.find(name)) + timedelta(days=day) for day in range(3000)]

        expected = [int(noon.timestamp()) * SECOND for noon in noons if is_day(noon.date())]
        assert [*recurrence.between(expected[0], expected[-1] + 1)] == expected, (name, of_month, of_week)
        assert [*recurrence.latest(expected[0], expected[-1] + 1)] == expected[::-1], (name, of_month, of_week)
