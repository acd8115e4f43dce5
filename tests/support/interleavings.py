"""Runs threads in every order: each line of some modules that uses an object is a step, before which another thread may
go on.

Only one thread runs at a time. `explore` repeats a case with every schedule of at most `preemptions` switches away from
a thread that could go on; switches from a thread that waits or has ended cost nothing. Most bugs of concurrency need
two such switches.
"""

from __future__ import annotations

import linecache
import sys
import threading
from collections.abc import Callable, Sequence
from functools import cache
from types import FrameType, ModuleType, TracebackType
from typing import Any, NamedTuple

Run = Callable[[], None]


class Choice(NamedTuple):
    """A step at which several threads could go on."""

    options: tuple[int, ...]
    chosen: int
    current: int | None  # the thread that could go on

    def cost(self, option: int) -> int:
        return self.current is not None and option != self.current


class Scheduler:
    """Runs the threads of one case by a schedule: which thread goes on at the first choices; then the same one."""

    def __init__(self, *, modules: Sequence[ModuleType], schedule: Sequence[int]) -> None:
        self._files = {module.__file__ for module in modules}
        self._schedule = schedule
        self._turns: list[threading.Semaphore] = []
        self._waits: dict[int, Callable[[], bool]] = {}
        self._left: set[int] = set()
        self._over = threading.Event()
        self._numbers = threading.local()
        self.choices: list[Choice] = []
        self.errors: list[BaseException] = []

    def run(self, *actors: Run) -> None:
        """Run actors to their ends."""
        self._turns = [threading.Semaphore(0) for _ in actors]
        self._left = {*range(len(actors))}
        threads = [
            threading.Thread(target=self._act, args=(number, actor), daemon=True) for number, actor in enumerate(actors)
        ]
        for thread in threads:
            thread.start()
        self._turns[self._choose(None)].release()
        assert self._over.wait(10), "the threads are stuck"
        for thread in threads:
            thread.join()

    def wait(self, condition: Callable[[], bool]) -> None:
        """Let others go on until a condition holds. Does nothing outside of the actors."""
        number = getattr(self._numbers, "number", None)
        if number is not None and not condition():
            self._waits[number] = condition
            self._switch(number, may_go_on=False)

    def step(self) -> None:
        number = getattr(self._numbers, "number", None)
        if number is not None:
            self._switch(number, may_go_on=True)

    def _act(self, number: int, actor: Run) -> None:
        self._turns[number].acquire()
        self._numbers.number = number
        sys.settrace(self._trace)
        try:
            actor()
        except BaseException as error:  # noqa: BLE001 - the test raises it
            self.errors.append(error)
        finally:
            sys.settrace(None)
            self._left.discard(number)
            if self._left:
                self._turns[self._choose(None)].release()
            else:
                self._over.set()

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename not in self._files:
            return None
        if event == "line" and _touches_object(frame.f_code.co_filename, frame.f_lineno):
            self.step()
        return self._trace

    def _switch(self, number: int, *, may_go_on: bool) -> None:
        chosen = self._choose(number if may_go_on else None)
        if chosen != number:
            self._turns[chosen].release()
            self._turns[number].acquire()

    def _choose(self, current: int | None) -> int:
        options = tuple(number for number in sorted(self._left) if self._may_go_on(number))
        if not options:
            self._over.set()  # all wait: `run` goes on, and finds threads that are left
            raise AssertionError("all threads wait")
        usual = current if current in options else options[0]
        chosen = options[0]
        if len(options) > 1:
            index = len(self.choices)
            chosen = self._schedule[index] if index < len(self._schedule) else usual
            self.choices.append(Choice(options, chosen, current))
        self._waits.pop(chosen, None)
        return chosen

    def _may_go_on(self, number: int) -> bool:
        return number not in self._waits or self._waits[number]()


@cache
def _touches_object(file: str, line: int) -> bool:
    """Return whether a line uses more than local variables, so that its order matters to other threads."""
    text = linecache.getline(file, line)
    return "self." in text or "super()" in text


class Lock:
    """A lock on which a scheduler can let a thread wait."""

    def __init__(self, *, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._is_held = False

    def __enter__(self) -> None:
        self._scheduler.wait(lambda: not self._is_held)
        assert not self._is_held
        self._is_held = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_held = False


class Condition(Lock):
    """A condition whose `wait` ends when it is notified."""

    def __init__(self, *, scheduler: Scheduler) -> None:
        super().__init__(scheduler=scheduler)
        self._notified = 0

    def wait(self, timeout: float | None = None) -> bool:
        self._is_held = False
        before = self._notified
        self._scheduler.wait(lambda: self._notified > before and not self._is_held)
        self._is_held = True
        return True

    def notify_all(self) -> None:
        self._notified += 1


def explore(case: Callable[[Scheduler], None], *, modules: Sequence[ModuleType], preemptions: int = 2) -> int:
    """Run a case by every schedule; return how many there are."""
    left: list[tuple[int, ...]] = [()]
    count = 0
    while left:
        schedule = left.pop()
        scheduler = Scheduler(modules=modules, schedule=schedule)
        try:
            case(scheduler)
            if scheduler.errors:
                raise scheduler.errors[0]
        except BaseException as error:
            error.add_note(f"schedule: {schedule}")
            raise
        count += 1
        left += _next_schedules(scheduler.choices, len(schedule), preemptions)
    return count


def _next_schedules(choices: Sequence[Choice], fixed: int, preemptions: int) -> list[tuple[int, ...]]:
    """Return the schedules that differ first at one of the choices that were not fixed."""
    found = []
    cost = sum(choice.cost(choice.chosen) for choice in choices[:fixed])
    prefix = tuple(choice.chosen for choice in choices)
    for index in range(fixed, len(choices)):
        choice = choices[index]
        for option in choice.options:
            if option != choice.chosen and cost + choice.cost(option) <= preemptions:
                found.append((*prefix[:index], option))
    return found
