"""Public ids of jobs and leases: an increasing number and random digits that cannot be guessed."""

from __future__ import annotations

import os  # `secrets` uses it too but takes 3 ms to import, in every worker process
from itertools import chain, repeat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_SEQ = 1 << 40

_TOKEN_BYTES = 8
_TOKENS_AT_ONCE = 512
_SEQ_DIGITS = 10
_ID_DIGITS = _SEQ_DIGITS + 2 * _TOKEN_BYTES
_LEASE_BYTES = 16
_LEASE_DIGITS = _SEQ_DIGITS + 2 * _LEASE_BYTES


def draw_tokens() -> Iterator[str]:
    """Return an endless iterator of random parts of ids, drawn in blocks because the system call is the main cost."""
    return chain.from_iterable(map(_draw, repeat(_TOKENS_AT_ONCE)))


def _draw(count: int) -> list[str]:
    return os.urandom(count * _TOKEN_BYTES).hex(" ", _TOKEN_BYTES).split(" ")


def write_id(seq: int, token: str) -> str:
    return "%010x%s" % (seq, token)  # noqa: UP031 - an f-string costs a fifth more


def parse_id(text: str) -> tuple[int, str] | None:
    """Split an id into `seq` and `token`; return None if the text is not a valid id."""
    if not _is_hex(text, _ID_DIGITS):
        return None
    return int(text[:_SEQ_DIGITS], 16), text[_SEQ_DIGITS:]


def make_lease_token(seq: int) -> str:
    return f"{seq:010x}{os.urandom(_LEASE_BYTES).hex()}"


def seq_of_lease(token: str) -> int | None:
    """Return the `seq` of a lease token's job; None if the text is not a valid token."""
    return int(token[:_SEQ_DIGITS], 16) if _is_hex(token, _LEASE_DIGITS) else None


def _is_hex(text: str, digits: int) -> bool:
    return len(text) == digits and not text.strip("0123456789abcdef")
