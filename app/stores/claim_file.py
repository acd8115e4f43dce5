"""The claims: a small file beside the database that outlives the process, so that a start knows what ran at its end."""

from __future__ import annotations

import os
from array import array
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from pathlib import Path

    from app.clock import Instant

_MAGIC = 0x65726C_636C61696D  # "erlclaim"
_WORD = 8
_HEAD = 3  # words: the magic, the identity of the database, the turn
_END = array("q", [0])
_HALVES = (0, 1 << 24)  # bytes; further apart than any number of claims reaches
_CHUNK = 1 << 17
_LONG = 32_768  # words, from which on a half is long; there is room for twice as many when the disk is full


class Claimed(NamedTuple):
    """A job that was claimed: its number, the version that it has since, and when."""

    seq: int
    version: int
    started_at: Instant


class ClaimFile:
    """Claims are written one behind the other and never taken out: a job whose row says as much or more has ended.

    When they are many, those that still hold are written to the front of the other half, and it goes on from there: so
    at each moment one half is whole. The file is not synced, as a claim need not survive a power cut.
    """

    def __init__(self, *, path: Path) -> None:
        self.path = path
        self._file: int | None = None
        self._identity = self._turn = self._end = self._live = 0

    def open(self, identity: str) -> None:
        """Take it as it is; what was written for another database counts for nothing."""
        self.close()
        self._identity = int(identity[:15], 16)
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        if os.fstat(self._file).st_size <= _HALVES[1]:
            for start in _HALVES:
                self._put(array("q", bytes(2 * _LONG * _WORD)), start)

    def read(self) -> list[Claimed]:
        """All that were written since the last `renew`, also those of jobs that have ended since."""
        self._turn, words = max((self._read(start) for start in _HALVES), key=lambda half: half[0])
        self._end, self._live = len(words), 0
        return [*_claims(words)]

    def add(self, seqs: Collection[int], versions: Iterable[int], started_at: Instant) -> None:
        """Write down jobs that were claimed together."""
        words = array("q", [len(seqs), started_at, *seqs, *versions])
        self._put(words + _END, self._place(self._turn, self._end))
        self._end += len(words)

    @property
    def is_long(self) -> bool:
        return self._end > max(_LONG, 2 * self._live)

    @property
    def end(self) -> int:
        """How far it goes; to be given to `rewind`."""
        return self._end

    def rewind(self, end: int) -> None:
        """Take back what was added since it went so far."""
        if end < self._end:
            self._end = end
            self._put(_END, self._place(self._turn, end))

    def renew(self, claims: Iterable[Claimed]) -> None:
        """Go on in the other half, with what still holds."""
        turn = self._turn + 1
        words = array("q", [word for seq, version, at in claims for word in (1, at, seq, version)])
        self._put(words + _END, self._place(turn, _HEAD))
        self._put(array("q", [_MAGIC, self._identity, turn]), self._place(turn, 0))
        self._turn, self._end, self._live = turn, _HEAD + len(words), len(words)

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _place(self, turn: int, words: int) -> int:
        return _HALVES[turn % len(_HALVES)] + words * _WORD

    def _put(self, words: array[int], place: int) -> None:
        rest = memoryview(words).cast("B")
        while rest and self._file is not None:
            written = os.pwrite(self._file, rest, place)
            place, rest = place + written, rest[written:]

    def _read(self, start: int) -> tuple[int, array[int]]:
        """The turn and the words of a half; none if it was not written for this database."""
        words = array("q")
        while self._file is not None:
            chunk = os.pread(self._file, _CHUNK, start + len(words) * _WORD)
            words.frombytes(chunk[: len(chunk) // _WORD * _WORD])
            if len(chunk) < _CHUNK or not words[-1]:
                break
        if len(words) < _HEAD or words[: _HEAD - 1].tolist() != [_MAGIC, self._identity]:
            return 0, array("q")
        return words[_HEAD - 1], words


def _claims(words: array[int]) -> Iterator[Claimed]:
    """What is written in a half; its end may be torn, or be what was there before."""
    at = _HEAD
    while at + 2 <= len(words) and 0 < words[at] <= (len(words) - at - 2) // 2:
        number, started_at = words[at : at + 2]
        at += 2 + 2 * number
        seqs, versions = words[at - 2 * number : at - number], words[at - number : at]
        yield from (Claimed(seq, version, started_at) for seq, version in zip(seqs, versions, strict=True))
