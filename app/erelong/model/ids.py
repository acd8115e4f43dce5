"""The public names of jobs and leases: a number that counts up, and random digits that nobody guesses."""

from __future__ import annotations

import os  # the source of `secrets` too, which takes 3 ms to import: each process of a worker would pay them
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_SEQ = 1 << 40

_TOKEN_BYTES = 8
_DRAWN = 512  # at a time
_SEQ_DIGITS = 10
_ID_DIGITS = _SEQ_DIGITS + 2 * _TOKEN_BYTES
_LEASE_BYTES = 16
_LEASE_DIGITS = _SEQ_DIGITS + 2 * _LEASE_BYTES


def draw_tokens() -> Iterator[str]:
    """Random parts of ids, drawn many at a time: asking the kernel costs more than all else of an id."""
    while True:
        yield from os.urandom(_DRAWN * _TOKEN_BYTES).hex(" ", _TOKEN_BYTES).split(" ")


def write_id(seq: int, token: str) -> str:
    return "%010x%s" % (seq, token)  # noqa: UP031 - an f-string costs a fifth more


def parse_id(text: str) -> tuple[int, str] | None:
    """Take an id apart into `seq` and `token`; None for what cannot be an id."""
    if not _is_hex(text, _ID_DIGITS):
        return None
    return int(text[:_SEQ_DIGITS], 16), text[_SEQ_DIGITS:]


def make_lease_token(seq: int) -> str:
    return f"{seq:010x}{os.urandom(_LEASE_BYTES).hex()}"


def seq_of_lease(token: str) -> int | None:
    """The job that a lease's token is of; None for what cannot be a token."""
    return int(token[:_SEQ_DIGITS], 16) if _is_hex(token, _LEASE_DIGITS) else None


def _is_hex(text: str, digits: int) -> bool:
    return len(text) == digits and not text.strip("0123456789abcdef")
