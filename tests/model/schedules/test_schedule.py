"""Schedules as documents."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from erelong.model.document import Document
from erelong.model.schedules.schedule import (
    MAX_RECENT,
    Counts,
    Fate,
    Overlap,
    Reason,
    Record,
    Schedule,
    as_document,
    read_schedule,
)
from erelong.model.times.catchup import Missed, MissedPolicy
from erelong.model.times.local_time import Fold, Gap
from erelong.model.times.timing import Timing
from tests.support.scheduled import MINUTE, make_schedule
from tests.support.virtual import EPOCH

ID, TOKEN = f"{7:010x}0123456789abcdef", "0123456789abcdef"


def stored(schedule: Schedule) -> Schedule:
    return read_schedule(as_document(schedule, EPOCH))


@pytest.mark.parametrize(
    "schedule",
    [
        make_schedule(),
        make_schedule(
            timing=Timing(cron="30 2 * * *", zone="Europe/Berlin", gap=Gap.SKIP, fold=Fold.SECOND, starts_at=EPOCH),
            missed=MissedPolicy.ALL,
            catchup=60.5,
            overlap=Overlap.ALLOW,
            spread=1.5,
        ),
        make_schedule(
            progress={
                "made_until": EPOCH + 1,
                "queued": EPOCH + 2,
                "live": (ID, TOKEN),
                "counts": Counts(3, 2, 1),
                "is_paused": True,
                "reason": "x",
                "version": 4,
                "row": 9,
            },
            job={"kind": "echo", "params": {"z": 1, "a": "ä"}},
        ).noted(Record(EPOCH, Fate.MISSED, None, Reason.DOWN, Missed(4, 1, 2, more=True)), 4),
    ],
)
def test_schedule_is_read_as_it_was_stored(schedule: Schedule) -> None:
    again = stored(schedule)

    assert again.row == schedule.row + 1
    assert again.recent == schedule.recent
    assert (again.definition, again.live, again.counts) == (schedule.definition, schedule.live, schedule.counts)
    assert stored(again).lines == again.lines


def test_document_follows_on_the_stored_one() -> None:
    first = as_document(make_schedule(), EPOCH)

    assert first[:4] == ("schedule", "report", 1, EPOCH)
    assert as_document(read_schedule(first), EPOCH).version == 2


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"{}", b'{"cron": 1}'])
def test_damaged_document_is_not_read(text: bytes) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        read_schedule(Document("schedule", "report", 1, EPOCH, text))


def test_only_the_latest_records_are_kept() -> None:
    schedule = make_schedule()
    for number in range(MAX_RECENT + 5):
        schedule = schedule.noted(Record(EPOCH + number * MINUTE, Fate.SKIPPED, reason=Reason.OVERLAP))

    assert len(schedule.recent) == MAX_RECENT
    assert schedule.recent[0].occurrence == EPOCH + (MAX_RECENT + 4) * MINUTE
    assert schedule.counts == Counts(skipped=MAX_RECENT + 5)


def test_tokens_become_ids() -> None:
    schedule = make_schedule(progress={"live": ("other", TOKEN)}).noted(Record(EPOCH, Fate.MADE, TOKEN))

    after = stored(schedule).with_ids({TOKEN: ID})

    assert after.live == ("other", ID)
    assert after.recent[0].job == ID
    assert after.with_ids({}) is after


def test_stored_form_is_plain_json() -> None:
    text: dict[str, Any] = orjson.loads(as_document(make_schedule(), EPOCH).text or b"")

    assert text["job"] == {"kind": "echo"}
    assert text["cursor"] == EPOCH
