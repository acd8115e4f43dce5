"""The agenda behaves like a sorted list for any due times and any order of calls."""

from __future__ import annotations

from bisect import bisect_right
from itertools import count, islice
from operator import itemgetter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from erelong.engine.agenda import Agenda
from tests.support.examples import examples
from tests.support.signals import CountingSignal

EPOCH = 1_790_000_000_000_000
SECOND = 1_000_000
LAST = 2**53

# Close together, often equal, and at both ends of time, to hit the limits and splits of slots.
INSTANTS = st.one_of(
    st.integers(EPOCH - 5, EPOCH + 5),
    st.integers(-2, 2).map(lambda seconds: EPOCH + seconds * SECOND),
    st.integers(0, 52).map(lambda power: EPOCH + 2**power),
    st.sampled_from([0, 1, EPOCH, LAST - 1, LAST]),
    st.integers(0, LAST),
)
STEPS = st.sampled_from([0, 1, -1, 7, -7, SECOND, -SECOND])


class AgendaAgainstSortedList(RuleBasedStateMachine):
    """The model is a list sorted by due; the stable sort keeps the order within one instant.

    All entries differ, so that the model knows which one was dropped.
    """

    @initialize(slot_size=st.sampled_from([2, 3, 4, 8, 4096]))
    def begin(self, slot_size: int) -> None:
        self.signals = 0
        self.expected_signals = 0
        self.agenda = Agenda(earlier=CountingSignal(self.note_signal), slot_size=slot_size)
        self.model: list[tuple[int, int]] = []
        self.numbers = (number ^ (number % 2 << 39) for number in count(1))  # small ones and large ones

    def note_signal(self) -> None:
        self.signals += 1

    @rule(due=INSTANTS)
    def add(self, due: int) -> None:
        pair = (due, next(self.numbers))
        self.agenda.add(*pair)
        self.expect([pair])

    @rule(dues=st.lists(INSTANTS, max_size=30))
    def extend(self, dues: list[int]) -> None:
        pairs = list(zip(dues, self.numbers, strict=False))
        self.agenda.extend(pairs)
        self.expect(pairs)

    @rule(due=INSTANTS, step=STEPS, entries=st.integers(1, 60))
    def add_one_after_the_other(self, due: int, step: int, entries: int) -> None:
        for index in range(entries):
            self.add(min(max(due + index * step, 0), LAST))

    @rule(now=INSTANTS, limit=st.integers(0, 40))
    def pop(self, now: int, limit: int) -> None:
        end = min(limit, bisect_right(self.model, now, key=itemgetter(0)))

        assert self.agenda.pop(now, limit) == self.model[:end]

        del self.model[:end]

    @rule(after=INSTANTS)
    def retain_half(self, after: int) -> None:
        """Keep every other entry due later; entries added meanwhile stay."""
        for snapshot in islice(self.agenda.snapshots(after), 3):
            self.add(max(snapshot.entries[0][0] if snapshot.entries else 0, 0))
            kept = snapshot.entries[::2]
            size = len(self.agenda)
            self.agenda.retain(snapshot, kept)
            if len(self.agenda) < size:  # otherwise the new entry split the slot
                for entry in snapshot.entries[1::2]:
                    self.model.remove(entry)

    @rule()
    def drain(self) -> None:
        self.pop(LAST, len(self.model) + 1)

    @invariant()
    def next_due_is_the_first_of_the_list(self) -> None:
        assert self.agenda.next_due() == (self.model[0][0] if self.model else None)

    @invariant()
    def length_is_that_of_the_list(self) -> None:
        assert len(self.agenda) == len(self.model)

    @invariant()
    def every_new_earliest_sets_the_signal_and_nothing_else(self) -> None:
        assert self.signals == self.expected_signals

    def expect(self, pairs: list[tuple[int, int]]) -> None:
        earliest = self.model[0][0] if self.model else LAST + 1
        self.expected_signals += any(due < earliest for due, _ in pairs)
        self.model.extend(pairs)
        self.model.sort(key=itemgetter(0))


TestAgendaAgainstSortedList = AgendaAgainstSortedList.TestCase
TestAgendaAgainstSortedList.settings = settings(max_examples=examples(150), stateful_step_count=40)
