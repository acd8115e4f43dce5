"""A signal that counts its sets and runs a callback at each."""

from __future__ import annotations

from collections.abc import Callable

from erelong.duties.signal import Signal


class CountingSignal(Signal):
    """`on_set` runs at each set."""

    __slots__ = ("count", "on_set")

    def __init__(self, on_set: Callable[[], object] = lambda: None) -> None:
        super().__init__()
        self.count = 0
        self.on_set = on_set

    def set(self) -> None:
        self.count += 1
        self.on_set()
        super().set()
