"""The tail of the output on a pipe."""

from __future__ import annotations

import os

import pytest

from erelong.handlers.process.tail import MAX_KEPT, Tail

pytestmark = pytest.mark.real_loop("asyncio", "uvloop")


async def test_written_bytes_are_readable_at_once() -> None:
    with Tail() as tail:
        os.write(tail.writer, b"one ")
        first = tail.text()
        os.write(tail.writer, b"two")

        assert (first, tail.text(), tail.is_cut) == ("one ", "one two", False)


async def test_text_begins_with_a_whole_character() -> None:
    with Tail() as tail:
        for _ in range(8):
            os.write(tail.writer, "é".encode() * 8_000)
            tail.take()
        os.write(tail.writer, b"x")

        assert tail.is_cut
        assert len(tail.take()) == MAX_KEPT
        assert tail.text() == "é" * (MAX_KEPT // 2 - 1) + "x"


async def test_cleared_tail_drops_unread_bytes_too() -> None:
    with Tail() as tail:
        os.write(tail.writer, b"old")
        tail.clear()
        os.write(tail.writer, b"new")

        assert tail.text() == "new"


async def test_closed_tail_keeps_what_it_has() -> None:
    tail = Tail()
    os.write(tail.writer, b"last")
    tail.text()

    tail.close()
    tail.close()

    assert tail.text() == "last"


async def test_text_stays_after_the_writer_closes() -> None:
    with Tail() as tail:
        os.write(tail.writer, b"all")
        tail.close_writer()
        tail.close_writer()

        assert tail.text() == "all"
        assert tail.text() == "all"
