"""What `top` draws, for screens of any size."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from erelong.cli.console.blocks import bar, columns
from erelong.cli.live.frame import Snapshot, View, frame, styled

VIEW = View(url="http://service", is_utc=True)
STATS: dict[str, Any] = {
    "now": "2026-11-18T12:05:22.000Z",
    "version": "1.2.3",
    "ready": True,
    "checks": {"store": "ok"},
    "jobs": {"scheduled": 1_048_211, "due": 1_213, "running": 87, "succeeded": 5, "failed": 214},
    "rates": {"succeeded": 3_388.2},
    "late": {"p99": 0.0041},
    "workers": {"running": 87, "of": 1_000},
}
DUE: dict[str, Any] = {
    "from": "2026-11-18T12:05:00.000Z",
    "step": 60.0,
    "counts": [n % 7 for n in range(120)],
    "overdue": 1_213,
    "later": 981_002,
    "sampled": 1,
}
FAILED: dict[str, Any] = {
    "id": "a",
    "kind": "http",
    "queue": "mail",
    "finished_at": "2026-11-18T12:04:10.000Z",
    "error": {"type": "http_status", "message": "HTTP 503: \x1b[2Jupstream"},
}


def queue(name: str, *, paused: bool = False, due: int = 0) -> dict[str, Any]:
    counts = {"due": due, "scheduled": 10 * due, "running": 3, "failed": 1}
    return {"name": name, "paused": paused, "counts": counts, "settings": {"concurrency": 10}, "late_p99": 0.004}


WHOLE = Snapshot(
    stats=STATS, due=DUE, queues=[queue("mail", paused=True, due=1_204), queue("default", due=9)], failures=[FAILED]
)


def text(found: Snapshot, view: View = VIEW, width: int = 100, height: int = 40) -> str:
    return "\n".join(line.text for line in frame(found, view, width, height))


def test_overview_has_tiles_due_times_queues_and_failures() -> None:
    shown = text(WHOLE)

    assert shown.splitlines()[0].startswith("erelong 1.2.3  http://service")
    assert "waiting 1,048,211 │ due 1,213 │ running 87 of 1,000 │ failed 214 │ 3,388/s done │ late p99 4.1 ms" in shown
    assert "! queue mail is paused with 1,204 due jobs; run: erelong queue mail resume" in shown
    assert "Due times, next 1 h 38 min: overdue 1,213, most 6 in 60 s, later 981,065" in shown
    assert " 12:05     12:15" in shown
    assert "> mail             paused       1,204      12,040       3/10    4.0 ms        1" in shown
    assert "12:04:10  http  mail  HTTP 503: ?[2Jupstream" in shown
    assert shown.splitlines()[-1].startswith("p pause/resume")


@pytest.mark.parametrize("width", [1, 19, 20, 39, 40, 60, 79, 80, 100, 200])
@pytest.mark.parametrize("height", [1, 2, 5, 12, 24, 60])
@pytest.mark.parametrize("opened", [None, "mail"])
def test_frame_fits_its_screen(width: int, height: int, opened: str | None) -> None:
    found = WHOLE._replace(
        queues=[queue(f"queue-{n}" * 3, due=n) for n in range(100)], jobs=[FAILED | {"due_at": None}]
    )

    lines = frame(found, VIEW._replace(selected="queue-60" * 3, opened=opened), width, height)

    assert len(lines) <= height
    assert max(len(line.text) for line in lines) <= max(width, 20)
    assert all(line.text.isprintable() for line in lines)


def test_narrow_screen_drops_columns_and_keeps_numbers_whole() -> None:
    shown = text(WHOLE, width=40)

    assert "> mail             paused       1,204" in shown
    assert "QUEUE" not in shown
    assert "12,040" not in shown
    assert [line for line in shown.splitlines() if line.startswith("waiting")] == ["waiting 1,048,211 │ due 1,213"]


def test_selected_queue_is_always_on_the_screen() -> None:
    found = WHOLE._replace(queues=[queue(f"q{n}") for n in range(100)])

    for selected in (0, 7, 50, 99):
        assert f"> q{selected} " in text(found, VIEW._replace(selected=f"q{selected}"), height=20)


def test_jobs_of_a_queue_are_listed_by_due_time() -> None:
    job = {"id": "a1", "kind": "echo", "due_at": "2026-11-18T12:06:00.000Z", "waiting_for": "time", "key": "order-7"}

    shown = text(WHOLE._replace(jobs=[job]), VIEW._replace(opened="mail"))

    assert "Waiting jobs of mail, by due time" in shown
    assert "  a1  2026-11-18 12:06:00  echo  time  order-7" in shown
    assert shown.splitlines()[-1] == "Esc back  q quit"


def test_lost_service_is_named_and_old_numbers_stay() -> None:
    since = datetime(2026, 11, 18, 12, 4, 10, tzinfo=UTC)
    shown = text(WHOLE._replace(error="no connection", since=since))
    never = text(Snapshot(error="no connection to http://service"))

    assert "no response since 12:04:10: no connection" in shown.splitlines()[0]
    assert "waiting 1,048,211" in shown
    assert never.splitlines()[:2] == ["erelong  http://service", "no connection to http://service"]
    assert text(Snapshot()).splitlines()[1] == "connecting …"


def test_service_without_anything_says_how_to_begin() -> None:
    empty = WHOLE._replace(queues=[], failures=[], due={**DUE, "counts": [0] * 120})

    assert "no queues yet: erelong submit echo hello=world makes the first job" in text(empty)
    assert "Last failures\n  none" in text(empty)


def test_message_takes_the_place_of_the_keys() -> None:
    assert text(WHOLE, VIEW._replace(message="mail paused")).splitlines()[-1] == "mail paused"


def test_colours_are_optional() -> None:
    lines = frame(WHOLE, VIEW, 80, 40)

    assert "\x1b" not in "".join(styled(lines, has_colours=False))
    assert "\x1b[31m" in "".join(styled(lines, has_colours=True))


# blocks


def test_bar_is_made_of_eighths() -> None:
    assert [bar(share, 2) for share in (0, 0.001, 0.5, 0.75, 1, 2)] == ["", "▏", "█", "█▌", "██", "██"]


def test_columns_fill_their_lines() -> None:
    assert columns([0, 1, 4, 8]) == [" ▁▄█"]
    assert columns([8, 12, 16, 0.1], 2) == [" ▄█ ", "███▁"]
    assert columns([]) == [""]
    assert columns([0, 0]) == ["  "]
