"""Measure the agenda by spread of due times and number of entries: python -m tests.bench.agenda [1e5 1e6 1e7]"""

from __future__ import annotations

import multiprocessing
import resource
import sys
from array import array
from collections import deque
from collections.abc import Callable
from pathlib import Path
from random import Random
from time import thread_time_ns  # CPU time, which other load on the machine does not change

from erelong.engine.agenda import Agenda

NOW = 1_790_000_000_000_000
SECOND = 1_000_000
DAY = 86_400 * SECOND
LAP = 500  # entries per pop, as in the scheduler
END = 2**53  # after all due times
PAGE = 10_000  # entries per batch, as at the start

SPREADS: dict[str, Callable[[Random, int], int]] = {
    "ten years": lambda random, _: NOW + int(random.random() * 3650 * DAY),
    "one second": lambda random, _: NOW + int(random.random() * SECOND),
    "one instant": lambda random, _: NOW,
    "ascending": lambda random, index: NOW + 50 * index,
    "descending": lambda random, index: NOW + 3650 * DAY - 50 * index,
    "ever farther": lambda random, _: NOW + int(2 ** (52 * random.random())),
}


def main(sizes: list[int]) -> None:
    print(f"{'':12} {'':>7}   µs: add  extend    pop   bytes   longest ms: add    pop")
    # One process per line: freed memory of one measurement would hide the use of the next.
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        for size in sizes:
            for spread in SPREADS:
                print(pool.apply(measure, (spread, size)), flush=True)


def measure(spread: str, size: int) -> str:
    random = Random(1)
    dues = array("q", (SPREADS[spread](random, index) for index in range(size)))
    before = resident_bytes()
    agenda = Agenda()
    add = add_all(agenda, dues)
    held = (resident_bytes() - before) / size
    pop = pop_all(agenda)
    extend = extend_all(agenda, dues)
    pop_all(agenda)
    longest_add, longest_pop = longest_add_and_pop(dues)
    return (
        f"{spread:12} {size:>7.0e} {add:>9.2f} {extend:>7.2f} {pop:>6.2f} {held:>7.1f}"
        f" {longest_add:>17.2f} {longest_pop:>6.2f}"
    )


def add_all(agenda: Agenda, dues: array[int]) -> float:
    began = thread_time_ns()
    deque(map(agenda.add, dues, range(1, len(dues) + 1)), maxlen=0)
    return (thread_time_ns() - began) / len(dues) / 1e3


def extend_all(agenda: Agenda, dues: array[int]) -> float:
    spent = 0
    for begin in range(0, len(dues), PAGE):
        page = list(zip(dues[begin : begin + PAGE], range(begin + 1, begin + PAGE + 1), strict=False))
        began = thread_time_ns()
        agenda.extend(page)
        spent += thread_time_ns() - began
    return spent / len(dues) / 1e3


def pop_all(agenda: Agenda) -> float:
    size = len(agenda)
    began = thread_time_ns()
    while agenda.pop(END, LAP):
        pass
    return (thread_time_ns() - began) / size / 1e3


def longest_add_and_pop(dues: array[int]) -> tuple[float, float]:
    """Return the duration of the slowest add and of the slowest pop, in milliseconds."""
    agenda = Agenda()
    longest_add = longest_pop = 0
    for seq, due in enumerate(dues, start=1):
        began = thread_time_ns()
        agenda.add(due, seq)
        longest_add = max(longest_add, thread_time_ns() - began)
    while agenda:
        began = thread_time_ns()
        agenda.pop(END, LAP)
        longest_pop = max(longest_pop, thread_time_ns() - began)
    return longest_add / 1e6, longest_pop / 1e6


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


if __name__ == "__main__":
    main([int(float(size)) for size in sys.argv[1:]] or [10**5, 10**6, 10**7])
