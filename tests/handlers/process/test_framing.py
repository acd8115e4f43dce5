"""Framed messages, however the stream is split."""

from __future__ import annotations

import socket

import pytest

from erelong.handlers.process.framing import Frames, framed, receive

MESSAGES = [b"", b"one", b"x" * 100_000, b"{}"]


@pytest.mark.parametrize("size", [1, 3, 7, 1_000_000])
def test_messages_are_read_as_they_were_framed(size: int) -> None:
    stream, frames, found = framed(*MESSAGES), Frames(), []

    for at in range(0, len(stream), size):
        frames.feed(stream[at : at + size])
        while (message := frames.take()) is not None:
            found.append(message)

    assert found == MESSAGES


def test_message_is_received_or_none_at_the_end() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(framed(b"one", b"") + framed(b"cut off")[:-1])
        ours.close()

        assert [receive(theirs) for _ in range(3)] == [b"one", b"", None]
