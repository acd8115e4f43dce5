"""What needs attention in a service, each with its remedy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from erelong.cli.console.output import counted, duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

LATE: Final = 60.0  # seconds
NEARLY_FULL: Final = 0.8


def issues_of(
    stats: Mapping[str, Any], queues: Sequence[Mapping[str, Any]], kinds: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Return one line for each issue. The service may be older and not have all of the fields."""
    checks = [f"{check}: {text}" for check, text in (stats.get("checks") or {}).items() if not text.startswith("ok")]
    return [
        *checks,
        *(issue for queue in queues for issue in _of_queue(queue)),
        *(issue for kind in kinds for issue in _of_kind(kind)),
    ]


def _of_queue(queue: Mapping[str, Any]) -> Iterator[str]:
    name, due = queue["name"], queue["counts"].get("due", 0)
    settings, age = queue.get("settings") or {}, queue.get("oldest_due_age") or 0.0
    if queue.get("paused") and due:
        why = f' ("{reason}")' if (reason := (queue.get("pause") or {}).get("reason")) else ""
        yield f"queue {name} is paused{why} with {counted(due, 'due job')}; run: erelong queue {name} resume"
    elif age > LATE and queue["counts"].get("running", 0) >= (settings.get("concurrency") or 0) > 0:
        more = 2 * settings["concurrency"]
        yield (
            f"queue {name} runs {settings['concurrency']} jobs at once, its limit, and the oldest of {due:,} due jobs "
            f"waits for {duration(age)}; allow more with: erelong queue {name} set concurrency={more}"
        )
    elif age > LATE and settings.get("rate"):
        rate = settings["rate"]["per_second"]
        yield (
            f"queue {name} starts at most {rate:g} jobs a second, and the oldest of {due:,} due jobs waits for "
            f"{duration(age)}; allow more with: erelong queue {name} set rate={2 * rate:g}"
        )
    waiting, most = queue["counts"].get("scheduled", 0), settings.get("max_backlog") or 0
    if most and waiting >= NEARLY_FULL * most:
        yield f"queue {name} has {waiting:,} waiting jobs; from {most:,} on (max_backlog) it takes no more"


def _of_kind(kind: Mapping[str, Any]) -> Iterator[str]:
    due = (kind.get("counts") or {}).get("due", 0)
    if due and kind.get("polling") == 0:
        jobs = counted(due, "due job")
        yield f"kind {kind['name']} has {jobs}, and no worker asks for them; run: erelong work MODULE:WORKER"
