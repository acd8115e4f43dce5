"""The claims: a small file beside the database that outlives the process, so that a start knows what ran at its end."""

from __future__ import annotations

import os
from array import array
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from pathlib import Path

    from erelong.clock.instants import Instant

_MAGIC = 0x65726C636C61696D  # "erlclaim"
_WORD = 8
_HEAD = 3  # words: the magic, the identity of the database, the turn
_ENTRY = 3  # words before the numbers and versions of jobs: how many there are, the sum, when they were claimed
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
        self._turn = max(map(self._turn_of, _HALVES))
        if not self._turn:
            for half in _HALVES:
                self._put(array("q", bytes(2 * _LONG * _WORD)), half)
            self.renew(())

    def read(self) -> list[Claimed]:
        """All that were written since the last `renew`, also those of jobs that have ended since."""
        words, claims = self._words(), list[Claimed]()
        self._end, self._live = _HEAD, 0
        while found := _claims(words, self._end):
            claims += found
            self._end += _ENTRY + 2 * len(found)
        return claims

    def add(self, seqs: Collection[int], versions: Iterable[int], started_at: Instant) -> None:
        """Write down jobs that were claimed together."""
        entry = _entry(seqs, versions, started_at)
        self._put(entry + _END, self._place(self._turn, self._end))
        self._end += len(entry)

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

    def renew(self, claims: Iterable[tuple[int, int, Instant]]) -> None:
        """Go on in the other half, with what still holds."""
        turn, words = self._turn + 1, array("q")
        for started_at, together in groupby(claims, key=itemgetter(2)):
            seqs, versions, _ = zip(*together, strict=True)
            words += _entry(seqs, versions, started_at)
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

    def _turn_of(self, half: int) -> int:
        """0 if it was not written for this database."""
        head = self._get(_HEAD * _WORD, half)
        return head[-1] if head[:-1].tolist() == [_MAGIC, self._identity] else 0

    def _words(self) -> array[int]:
        """The half in use, at least as far as it goes."""
        words = array("q")
        while chunk := self._get(_CHUNK, self._place(self._turn, len(words))):
            words += chunk
            if not chunk[-1]:
                break
        return words

    def _get(self, size: int, place: int) -> array[int]:
        content = b"" if self._file is None else os.pread(self._file, size, place)
        return array("q", content[: len(content) // _WORD * _WORD])


def _entry(seqs: Collection[int], versions: Iterable[int], started_at: Instant) -> array[int]:
    body = array("q", [started_at, *seqs, *versions])
    return array("q", [len(seqs), _sum(body)]) + body


def _claims(words: array[int], start: int) -> list[Claimed]:
    """What an entry says; nothing if it is the end, or torn, and what follows was there before."""
    if start + _ENTRY > len(words):
        return []
    number, sum_, started_at = words[start : start + _ENTRY]
    middle, end = start + _ENTRY + number, start + _ENTRY + 2 * number
    if number < 1 or end > len(words) or _sum(words[start + _ENTRY - 1 : end]) != sum_:
        return []
    pairs = zip(words[start + _ENTRY : middle], words[middle:end], strict=True)
    return [Claimed(seq, version, started_at) for seq, version in pairs]


def _sum(words: array[int]) -> int:
    """Never 0, as which no word is written but the end."""
    return crc32(words) + 1
