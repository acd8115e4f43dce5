"""The claim log: a small file beside the database that tells the next process which jobs were running."""

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
_HEAD = 3  # words: the magic, the identity of the database, the generation
_ENTRY = 3  # words before the numbers and versions of the jobs: how many, the checksum, the time of the claim
_END = array("q", [0])
_HALVES = (0, 1 << 24)  # offsets in bytes; no half grows that long
_CHUNK = 1 << 17
_LONG = 32_768  # words that make a half long; twice as many are allocated ahead, for a full disk


class Claimed(NamedTuple):
    """A claimed job: its number, its version since the claim, and the time of the claim."""

    seq: int
    version: int
    started_at: Instant


class ClaimFile:
    """An append-only log of claims. A claim is obsolete once the row of its job has the claimed version or a later one.

    A long log is compacted: the valid claims are written to the start of the other half, which becomes current. So one
    half is whole at any moment. The file is not synced, since a claim need not survive a power cut.
    """

    def __init__(self, *, path: Path) -> None:
        self.path = path
        self._file: int | None = None
        self._identity = self._generation = self._end = self._live = 0

    def open(self, identity: str) -> None:
        """Open the file; claims of another database are ignored."""
        self.close()
        self._identity = int(identity[:15], 16)
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._generation = max(map(self._generation_of, _HALVES))
        if not self._generation:
            for half in _HALVES:
                self._put(array("q", bytes(2 * _LONG * _WORD)), half)
            self.renew(())

    def read(self) -> list[Claimed]:
        """Return all claims since the last `renew`, including those of ended jobs."""
        words, claims = self._words(), list[Claimed]()
        self._end, self._live = _HEAD, 0
        while entry := _read_entry(words, self._end):
            claims += entry
            self._end += _ENTRY + 2 * len(entry)
        return claims

    def add(self, seqs: Collection[int], versions: Iterable[int], started_at: Instant) -> None:
        """Append jobs that were claimed together."""
        entry = _entry(seqs, versions, started_at)
        self._put(entry + _END, self._offset(self._generation, self._end))
        self._end += len(entry)

    @property
    def is_long(self) -> bool:
        return self._end > max(_LONG, 2 * self._live)

    @property
    def end(self) -> int:
        """The end of the log, for `rewind`."""
        return self._end

    def rewind(self, end: int) -> None:
        """Remove the claims after this end."""
        if end < self._end:
            self._end = end
            self._put(_END, self._offset(self._generation, end))

    def renew(self, claims: Iterable[tuple[int, int, Instant]]) -> None:
        """Write the valid claims to the other half, and continue there."""
        generation, words = self._generation + 1, array("q")
        for started_at, together in groupby(claims, key=itemgetter(2)):
            seqs, versions, _ = zip(*together, strict=True)
            words += _entry(seqs, versions, started_at)
        self._put(words + _END, self._offset(generation, _HEAD))
        self._put(array("q", [_MAGIC, self._identity, generation]), self._offset(generation, 0))
        self._generation, self._end, self._live = generation, _HEAD + len(words), len(words)

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _offset(self, generation: int, words: int) -> int:
        return _HALVES[generation % len(_HALVES)] + words * _WORD

    def _put(self, words: array[int], offset: int) -> None:
        rest = memoryview(words).cast("B")
        while rest and self._file is not None:
            written = os.pwrite(self._file, rest, offset)
            offset, rest = offset + written, rest[written:]

    def _generation_of(self, half: int) -> int:
        """Return the generation of a half; 0 if it belongs to another database."""
        head = self._get(_HEAD * _WORD, half)
        return head[-1] if head[:-1].tolist() == [_MAGIC, self._identity] else 0

    def _words(self) -> array[int]:
        """Return the current half, at least up to its end."""
        words = array("q")
        while chunk := self._get(_CHUNK, self._offset(self._generation, len(words))):
            words += chunk
            if not chunk[-1]:
                break
        return words

    def _get(self, size: int, offset: int) -> array[int]:
        content = b"" if self._file is None else os.pread(self._file, size, offset)
        return array("q", content[: len(content) // _WORD * _WORD])


def _entry(seqs: Collection[int], versions: Iterable[int], started_at: Instant) -> array[int]:
    body = array("q", [started_at, *seqs, *versions])
    return array("q", [len(seqs), _checksum(body)]) + body


def _read_entry(words: array[int], start: int) -> list[Claimed]:
    """Return the claims of an entry; empty at the end of the log or if the entry is torn."""
    if start + _ENTRY > len(words):
        return []
    number, checksum, started_at = words[start : start + _ENTRY]
    middle, end = start + _ENTRY + number, start + _ENTRY + 2 * number
    if number < 1 or end > len(words) or _checksum(words[start + _ENTRY - 1 : end]) != checksum:
        return []
    pairs = zip(words[start + _ENTRY : middle], words[middle:end], strict=True)
    return [Claimed(seq, version, started_at) for seq, version in pairs]


def _checksum(words: array[int]) -> int:
    """Return a checksum that is never 0, the word that marks the end."""
    return crc32(words) + 1
