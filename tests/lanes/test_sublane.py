"""A sublane with many jobs behaves like one with few."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from erelong.lanes import sublane
from erelong.lanes.lane import INSIDE, NO_LABEL
from erelong.lanes.sublane import Shards, Sublane
from erelong.model.ids import MAX_SEQ


def test_shards_behave_like_a_dictionary() -> None:
    chance = random.Random(5)
    plain: dict[int, int] = {}
    shards = Shards(plain)
    for _ in range(20_000):
        seq = chance.randrange(5_000)
        if chance.random() < 0.6:
            plain[seq] = shards[seq] = chance.randrange(100)
        else:
            assert shards.pop(seq, None) == plain.pop(seq, None)

    assert dict(shards) == plain
    assert len(shards) == len(plain)
    assert all((seq in shards) == (seq in plain) for seq in range(5_000))


def test_shards_never_double_together() -> None:
    shards = Shards({})
    sizes = []
    for seq in range(200_000):
        shards[seq] = 0
        if seq % 1_000 == 0:
            sizes.append([len(shard).bit_length() for shard in shards._shards])

    grown = [sum(map(int.__ne__, before, after)) for before, after in pairwise(sizes[20:])]
    assert max(grown) <= 4


@pytest.mark.parametrize("many", [10, 10_000])
def test_jobs_leave_in_order_however_many_there_are(monkeypatch: pytest.MonkeyPatch, many: int) -> None:
    monkeypatch.setattr(sublane, "MANY", many)
    chance = random.Random(3)
    jobs = Sublane(INSIDE, NO_LABEL)
    ranks = {seq: chance.randrange(1_000) for seq in range(1, 500)}
    for seq, rank in ranks.items():
        jobs.put({seq: rank * MAX_SEQ + seq})
    for seq in range(1, 500, 3):
        jobs.discard(seq)
        del ranks[seq]

    assert jobs.first() == min(rank * MAX_SEQ + seq for seq, rank in ranks.items())
    assert jobs.pop(1_000) == sorted(ranks, key=lambda seq: (ranks[seq], seq))
    assert not jobs.waiting
