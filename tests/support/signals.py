"""A signal that counts how often it was set, and does what a test says each time."""

from __future__ import annotations

from collections.abc import Callable

from erelong.duties.signal import Signal


class CountingSignal(Signal):
    """`told` is called at each set."""

    __slots__ = ("count", "told")

    def __init__(self, told: Callable[[], object] = lambda: None) -> None:
        super().__init__()
        self.count = 0
        self.told = told

    def set(self) -> None:
        self.count += 1
        self.told()
        super().set()
