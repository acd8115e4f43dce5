"""The console lines of README and the guide, pasted into a service: each page shows the real output."""

from __future__ import annotations

import re
import shlex
from typing import NamedTuple

import pytest

from erelong.clock.instants import parse_start
from erelong.settings.api_keys import fingerprint_of, new_key
from erelong.settings.sections import AuthSection, Config
from tests.docs.pages import OF_COMMANDS, blocks, blocks_of, merged, read
from tests.support.served import Answer, Serve, Served

VOLATILE = {
    *("id", "execute_at", "due_at", "created_at", "started_at", "finished_at", "expires_at", "lease_until"),
    *("late_by", "request_id", "token", "next_at", "changed_at", "occurrence", "tzdb", "job", "callback_of", "at"),
    *("now", "as_of", "from"),
}
MEMBER = re.compile(r'"(\w+)":("[^"]*"|-?[\d.]+|null|true|false)')
RANDOM = re.compile(r"\b(?:[0-9a-f]{42}|[0-9a-f]{26})\b")  # lease tokens and job ids
PAGES = sorted({block.page for block in blocks("console")} - {*OF_COMMANDS})


class Line(NamedTuple):
    """A command of a page, and the output shown under it."""

    command: str
    shown: str


def lines(page: str) -> list[Line]:
    parts = [part for block in blocks_of(page, "console") for part in re.split(r"^\$ ", block.text, flags=re.M)[1:]]
    return [Line(command, opening + shown) for command, opening, shown in map(_parted, parts)]


def _parted(part: str) -> tuple[str, str, str]:
    return part.partition("\n{") if "\n{" in part else (part, "", "")


async def run(service: Served, command: str) -> Answer:
    """Send the request that curl would send."""
    words = shlex.split(command.replace("\\\n", " "))
    data: str | None = None
    if words[0] == "printf":
        pipe = words.index("|")
        data = "".join(word + "\n" for word in words[2:pipe])
        words = words[pipe + 1 :]
    assert words[:2] == ["curl", "-s"], command
    method, path, headers = "", "", {}
    arguments = iter(words[2:])
    for word in arguments:
        match word:
            case "-X":
                method = next(arguments)
            case "-H":
                name, _, value = next(arguments).partition(": ")
                headers[name] = value
            case "-d":
                data = next(arguments)
            case "--data-binary":
                assert next(arguments) == "@-"
            case _:
                assert word.startswith("localhost:8080/"), f"no option of curl that is known here: {word}"
                path = word.removeprefix("localhost:8080")
    body = None if data is None else data.encode()
    media = headers.pop("Content-Type", None)
    return await service.call(
        method or ("GET" if data is None else "POST"), path, data=body, type=media, headers=headers
    )


@pytest.fixture
def config(page: str) -> Config:
    """Return the settings that the page shows."""
    return Config.model_validate(merged(page))


@pytest.mark.parametrize("page", PAGES)
async def test_pasted_lines_return_the_output_of_the_page(page: str, config: Config, serve: Serve) -> None:
    pull = {name: kind for name, kind in config.kinds.items() if kind.pull}
    key = new_key()
    keys = {name: shown.model_copy(update={"sha256": fingerprint_of(key)}) for name, shown in config.auth.keys.items()}
    auth = AuthSection(keys=keys, allow_anonymous=True)  # the contract check reads openapi.json without a key
    clock = re.search(r"^erelong serve --virtual-clock=(\S+)", read(page), re.MULTILINE)
    service = await serve(
        declared=pull,
        queues=config.queues,
        webhooks=config.webhooks,
        auth=auth,
        virtual_from=parse_start(clock[1]) if clock else None,
    )
    known: dict[str, str] = {}

    for line in lines(page):
        answer = await run(service, RANDOM.sub(lambda shown: known[shown[0]], line.command.replace("erl_…", key)))
        text = answer.body.decode().replace("endless, ", "")  # a kind of the tests

        assert answer.status < 300 or f'"status":{answer.status},' in line.shown, f"{line.command}\n{text}"
        assert bool(text) is bool(line.shown), f"{line.command}\n{text}"
        for name, value in MEMBER.findall(line.shown):
            assert f'"{name}":' in text, f"{line.command}\nno {name}: {text}"
            assert name in VOLATILE or f'"{name}":{value}' in text, f"{line.command}\n{name} is not {value}: {text}"
        for shown, real in zip(RANDOM.findall(line.shown), RANDOM.findall(text), strict=False):
            known[shown] = real


def test_there_are_lines_to_paste() -> None:
    assert sum(len(lines(page)) for page in PAGES) >= 20
    assert {"README.md", "docs/jobs.md", "docs/job-keys.md", "docs/workers.md", "docs/queues.md"} <= {*PAGES}
