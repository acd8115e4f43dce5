"""The public behaviour of the agenda; `properties/` compares it with a model."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from random import Random

import pytest

from erelong.engine.agenda import Agenda
from tests.support.signals import CountingSignal

NOW = 1_790_000_000_000_000
SECOND = 1_000_000
DAY = 86_400 * SECOND
FOR_EVER = 2**64


def test_empty_agenda_has_nothing_next() -> None:
    agenda = Agenda()

    assert agenda.next_due() is None
    assert len(agenda) == 0
    assert agenda.pop(FOR_EVER, 10) == []


def test_earliest_comes_out_first() -> None:
    agenda = Agenda()

    agenda.extend([(NOW + 3, 1), (NOW + 1, 2), (NOW + 2, 3)])

    assert agenda.next_due() == NOW + 1
    assert agenda.pop(FOR_EVER, 10) == [(NOW + 1, 2), (NOW + 2, 3), (NOW + 3, 1)]
    assert agenda.next_due() is None


def test_pop_takes_entries_due_at_now_and_leaves_those_a_microsecond_later() -> None:
    agenda = Agenda()
    agenda.extend([(NOW - 1, 1), (NOW, 2), (NOW + 1, 3)])

    due = agenda.pop(NOW, 10)

    assert due == [(NOW - 1, 1), (NOW, 2)]
    assert agenda.next_due() == NOW + 1
    assert len(agenda) == 1


@pytest.mark.parametrize("limit", [0, -1])
def test_pop_with_no_room_takes_nothing(limit: int) -> None:
    agenda = Agenda()
    agenda.add(NOW, 1)

    assert agenda.pop(FOR_EVER, limit) == []
    assert len(agenda) == 1


def test_entries_of_one_instant_leave_in_the_order_they_came() -> None:
    agenda = Agenda(slot_size=4)
    seqs = [9, 2, 7, 1, 8, 3, 6, 4, 5, 20, 11, 17]

    for seq in seqs:
        agenda.add(NOW, seq)

    popped = [agenda.pop(NOW, 5) for _ in range(3)]
    assert [len(some) for some in popped] == [5, 5, 2]
    assert [seq for some in popped for _, seq in some] == seqs


def test_same_pair_twice_comes_out_twice() -> None:
    agenda = Agenda()

    agenda.extend([(NOW, 1), (NOW, 1)])

    assert agenda.pop(NOW, 10) == [(NOW, 1), (NOW, 1)]


def test_later_entry_that_is_due_first_leaves_first() -> None:
    agenda = Agenda()
    agenda.extend([(NOW + delay, delay) for delay in (10, 20, 30)])
    agenda.pop(NOW + 10, 10)

    agenda.add(NOW + 25, 25)
    agenda.add(NOW - DAY, 1)

    assert agenda.next_due() == NOW - DAY
    assert [seq for _, seq in agenda.pop(FOR_EVER, 10)] == [1, 20, 25, 30]


def test_signal_is_set_only_for_a_new_earliest_entry() -> None:
    signalled: list[int | None] = []
    agenda = Agenda(earlier=CountingSignal(lambda: signalled.append(agenda.next_due())))

    for delay in (5, 5, 9, 3, 4, 0):
        agenda.add(NOW + delay, 1)

    assert signalled == [NOW + 5, NOW + 3, NOW]


def test_signal_is_set_for_the_first_entry_after_a_drain() -> None:
    signalled: list[int | None] = []
    agenda = Agenda(earlier=CountingSignal(lambda: signalled.append(agenda.next_due())))
    agenda.add(NOW, 1)
    agenda.pop(NOW, 1)

    agenda.add(NOW + DAY, 2)

    assert signalled == [NOW, NOW + DAY]


def test_batch_sets_the_signal_once_and_only_for_a_new_earliest_entry() -> None:
    signalled: list[int | None] = []
    agenda = Agenda(earlier=CountingSignal(lambda: signalled.append(agenda.next_due())))

    agenda.extend([])
    agenda.extend([(NOW + 5, 1), (NOW + 3, 2), (NOW + 4, 3)])
    agenda.extend([(NOW + 3, 4), (NOW + 9, 5)])

    assert signalled == [NOW + 3]


def test_batch_that_raises_leaves_the_agenda_unchanged() -> None:
    agenda = Agenda()
    agenda.add(NOW, 1)

    with pytest.raises(ZeroDivisionError):
        agenda.extend((NOW - 1, 1 // left) for left in (1, 0))

    assert len(agenda) == 1
    assert agenda.pop(FOR_EVER, 10) == [(NOW, 1)]


DISTRIBUTIONS: dict[str, Callable[[Random], int]] = {
    "one instant": lambda _: NOW,
    "one second": lambda random: NOW + random.randrange(SECOND),
    "ten years": lambda random: NOW + random.randrange(3650 * DAY),
    "few instants": lambda random: NOW + random.randrange(3) * DAY,
    "near and ever farther": lambda random: NOW + int(2 ** random.uniform(0, 52)),
    "one instant, with a few exceptions": lambda random: random.choices((NOW, random.randrange(2**53)), (99, 1))[0],
}


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("order", [list, sorted, lambda dues: sorted(dues, reverse=True)], ids=["mixed", "up", "down"])
def test_any_distribution_in_any_order_comes_out_sorted(
    distribution: str, order: Callable[[list[int]], list[int]]
) -> None:
    random = Random(distribution)
    dues = order([DISTRIBUTIONS[distribution](random) for _ in range(20_000)])
    pairs = list(zip(dues, range(1, 20_001), strict=True))
    agenda = Agenda()

    for due, seq in pairs[:10_000]:
        agenda.add(due, seq)
    agenda.extend(pairs[10_000:])

    assert len(agenda) == 20_000
    assert agenda.pop(FOR_EVER, 7) + agenda.pop(FOR_EVER, 20_000) == sorted(pairs, key=lambda pair: pair[0])


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_pending_entry_takes_under_thirty_bytes_and_frees_them(distribution: str) -> None:
    random = Random(distribution)
    pairs = [(DISTRIBUTIONS[distribution](random), seq) for seq in range(100_000)]

    tracemalloc.start()
    try:
        agenda = Agenda()
        agenda.extend(pairs)
        filled, _ = tracemalloc.get_traced_memory()
        while agenda.pop(FOR_EVER, 500):
            pass
        drained, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert filled / len(pairs) < 30
    assert drained < filled / 10  # the interpreter keeps 2,000 tuples (112 kB) for reuse


def test_flood_before_the_front_takes_no_more_memory_than_one_after_it() -> None:
    agenda = Agenda()
    agenda.extend([(NOW, 1), (NOW + DAY, 2)])
    agenda.pop(NOW, 1)
    random = Random(1)

    tracemalloc.start()
    try:
        for seq in range(50_000):
            agenda.add(NOW + random.randrange(DAY), seq)
        filled, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert filled / 50_000 < 40  # the front has at most 4,096 pairs, a tenth of all here


# the window


def test_entries_beyond_the_edge_are_left_to_the_store() -> None:
    agenda = Agenda()
    agenda.edge = (NOW, 5)

    agenda.add(NOW, 6)
    agenda.add(NOW, 5)
    agenda.extend([(NOW - 1, 9), (NOW, 4), (NOW, 7), (NOW + 1, 1)])

    assert agenda.pop(FOR_EVER, 10) == [(NOW - 1, 9), (NOW, 5), (NOW, 4)]


@pytest.mark.parametrize("span", [1, 1_000, 10**9])
def test_above_its_limit_it_drops_the_latest_and_moves_its_edge_back(span: int) -> None:
    chance = Random(1)
    agenda = Agenda(limit=1_000)
    pairs = [(NOW + chance.randrange(span), seq) for seq in range(5_000)]

    for pair in pairs:
        agenda.add(*pair)

    edge = agenda.edge
    kept = set(agenda.pop(FOR_EVER, 5_000))
    assert len(kept) <= 1_000
    assert {pair for pair in pairs if pair <= edge} <= kept
    assert len(kept) > 1_000 * 3 // 4


def test_low_signal_is_set_at_the_refill_mark() -> None:
    low = CountingSignal()
    agenda = Agenda(low=low)
    agenda.extend([(NOW, seq) for seq in range(10)])
    agenda.refill_at = 4

    agenda.pop(NOW, 5)
    assert low.count == 0
    agenda.pop(NOW, 1)

    assert low.count == 1
