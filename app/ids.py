"""The public names of jobs: a number that counts up, and random digits that nobody guesses."""

from __future__ import annotations

import secrets

MAX_SEQ = 1 << 40

_TOKEN_BYTES = 8
_SEQ_DIGITS = 10
_ID_DIGITS = _SEQ_DIGITS + 2 * _TOKEN_BYTES


class Tokens:
    """Random parts of ids, drawn many at a time: asking the kernel costs more than all else of an id."""

    def __init__(self) -> None:
        self._drawn: list[str] = []

    def take(self) -> str:
        if not self._drawn:
            text = secrets.token_hex(256 * _TOKEN_BYTES)
            self._drawn = [text[at : at + 2 * _TOKEN_BYTES] for at in range(0, len(text), 2 * _TOKEN_BYTES)]
        return self._drawn.pop()


def write_id(seq: int, token: str) -> str:
    return f"{seq:010x}{token}"


def parse_id(text: str) -> tuple[int, str] | None:
    """Take an id apart into `seq` and `token`; None for what cannot be an id."""
    if len(text) != _ID_DIGITS or text.strip("0123456789abcdef"):
        return None
    return int(text[:_SEQ_DIGITS], 16), text[_SEQ_DIGITS:]
