"""The random parts of ids."""

from __future__ import annotations

from itertools import islice

from erelong.model.ids import draw_tokens, parse_id, write_id


def test_tokens_are_unique() -> None:
    tokens = [*islice(draw_tokens(), 1_000)]

    assert len(set(tokens)) == 1_000
    assert all(parse_id(write_id(7, token)) == (7, token) for token in tokens)
