"""Arbitrary bytes get a problem or a closed connection, and do not fill the log."""

from __future__ import annotations

import logging
import random

import pytest

from tests.support.raw_requests import CORPUS, answers_in, check_raw, mutated
from tests.support.served import Served

TAKEN = {"chunks in HTTP/1.0", "chunk with a long extension", "trailers", "Expect", "upgrade with a body", "deflate"}


@pytest.mark.parametrize("name", CORPUS)
async def test_invalid_request_gets_a_problem_or_is_disconnected(
    service: Served, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    answers = answers_in(await service.raw(CORPUS[name]))

    for answer in answers:
        check_raw(answer)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
    assert (await service.get("/livez")).status == 200


@pytest.mark.parametrize("name", sorted(TAKEN))
async def test_unusual_valid_request_is_accepted(service: Served, name: str) -> None:
    assert answers_in(await service.raw(CORPUS[name]))[-1].status == 201


async def test_body_is_not_parsed_as_the_next_request(service: Served) -> None:
    (answer,) = answers_in(await service.raw(CORPUS["length and chunks"]))

    assert answer.status == 400
    assert not any(route == "none" and status == "404" for _, route, status in service.node.metrics.requests.values)


async def test_mutated_requests_get_a_response(service: Served, caplog: pytest.LogCaptureFixture) -> None:
    chance = random.Random(4)

    for _ in range(300):
        request = mutated(chance.choice([*CORPUS.values()]), chance)
        for answer in answers_in(await service.raw(request)):
            check_raw(answer)

    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
    assert (await service.get("/livez")).status == 200
