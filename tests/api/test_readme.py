"""README's console lines, pasted: what they answer is what README shows."""

from __future__ import annotations

import re
import shlex
from typing import NamedTuple

from tests.support import ROOT
from tests.support.served import Answer, Served

VOLATILE = {"id", "execute_at", "due_at", "created_at", "started_at", "finished_at", "late_by", "request_id"}
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
MEMBER = re.compile(r'"(\w+)":("[^"]*"|-?[\d.]+|null|true|false)')
ID = re.compile(r"\b[0-9a-f]{26}\b")


class Line(NamedTuple):
    """A command of README, and the answer shown under it."""

    command: str
    shown: str


def lines() -> list[Line]:
    parts = [part for block in BLOCK.findall(README) for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]]
    return [Line(*part.split("\n{", 1)) for part in parts]


async def run(service: Served, command: str) -> Answer:
    """Do what curl would do."""
    words = shlex.split(command.replace("\\\n", " "))
    data: str | None = None
    if words[0] == "printf":
        pipe = words.index("|")
        data = "".join(word + "\n" for word in words[2:pipe])
        words = words[pipe + 1 :]
    assert words[:2] == ["curl", "-s"]
    method, path, media = "", "", None
    for word, following in zip(words[2:], [*words[3:], ""], strict=True):
        match word:
            case "-X":
                method = following
            case "-H":
                media = following.removeprefix("Content-Type: ")
            case "-d":
                data = following
            case _ if word.startswith("localhost:8080"):
                path = word.removeprefix("localhost:8080")
    body = None if data is None else data.encode()
    return await service.call(method or ("GET" if data is None else "POST"), path, data=body, type=media)


async def test_pasted_lines_answer_what_is_shown(service: Served) -> None:
    ids: dict[str, str] = {}

    for line in lines():
        answer = await run(service, ID.sub(lambda shown: ids[shown[0]], line.command))
        text = answer.body.decode().replace("endless, ", "")  # a kind of the tests

        assert answer.status < 300, text
        for name, value in MEMBER.findall("{" + line.shown):
            assert f'"{name}":' in text
            assert name in VOLATILE or f'"{name}":{value}' in text, f"{line.command}\n{name} is not {value}: {text}"
        for shown, real in zip(ID.findall(line.shown), ID.findall(text), strict=False):
            ids[shown] = real


def test_there_are_lines_to_paste() -> None:
    assert len(lines()) >= 7
