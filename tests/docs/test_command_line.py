"""The pages about the command line: their lines are pasted into a terminal, and they name every command."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from erelong import Client
from erelong.cli.client.topics import TEXTS
from erelong.cli.commands import COMMANDS, TOPICS, parser_of
from tests.docs.pages import OF_COMMANDS, blocks_of, read
from tests.support import SOURCE
from tests.support.process import ServiceProcess
from tests.support.terminal import OnTerminal
from tests.test_docs import names, rows

MakeService = Callable[..., ServiceProcess]

pytestmark = pytest.mark.timeout(60)

PAGE = "docs/command-line.md"


@pytest.fixture
def service(make_service: MakeService) -> ServiceProcess:
    service = make_service(settings={"store.kind": "memory"})
    service.start()
    return service


@pytest.fixture
def environment(service: ServiceProcess, tmp_path: Path) -> dict[str, str]:
    """Variables with the service, and `erelong` among the programs."""
    program = tmp_path / "bin" / "erelong"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m erelong "$@"\n')
    program.chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ERELONG_", "PYTHON"))}
    own = {"ERELONG_URL": service.url, "XDG_CONFIG_HOME": str(tmp_path), "PYTHONPATH": str(SOURCE), "TZ": "UTC"}
    return {**kept, **own, "PATH": f"{program.parent}:{os.environ['PATH']}"}


def lines(page: str) -> Iterator[tuple[str, str]]:
    """Yield each console line of a page, with the output shown under it."""
    for block in blocks_of(page, "console"):
        for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
            command, _, shown = part.partition("\n")
            yield command, shown


def pattern(shown: str) -> str:
    """Return output of a page as an expression: a line `…` stands for any lines, and spaces for any number of them."""
    text = re.escape(shown.strip()).replace("\\\n", "\n").replace("…", "\0")
    text = re.sub(r"\n\0\n", r"\n(?:.*\n)*?", text)
    text = re.sub(r"\n\0$", r"(?:\n.*)*", text)
    text = text.replace("\0", ".*")
    text = re.sub(r"[0-9a-f]{26}", "[0-9a-f]{26}", text)
    text = re.sub(r"\d{4}\\-\d\d\\-\d\d(\\ |T)\d\d:\d\d:\d\d", r"\\d{4}-\\d\\d-\\d\\d[ T]\\d\\d:\\d\\d:\\d\\d", text)
    text = re.sub(r"\d\d:\d\d:\d\d(\\\.\d{3})?Z", r"\\d\\d:\\d\\d:\\d\\d(?:\\.\\d{3})?Z", text)
    text = re.sub(r"\d\d:\d\d:\d\d\\\.\d{3}Z", r"\\d\\d:\\d\\d:\\d\\d\\.\\d{3}Z", text)
    text = re.sub(r"in\\ \d+\\ h", r"in\\ [\\w ]+", text)
    return re.sub(r"(?:\\ )+", r" +", text)


@pytest.mark.parametrize("page", OF_COMMANDS)
def test_pasted_lines_print_the_output_of_the_page(page: str, environment: dict[str, str], tmp_path: Path) -> None:
    for command, shown in lines(page):
        with OnTerminal(["bash", "-c", command], folder=tmp_path, environment=environment, size=(120, 50)) as screen:
            screen.wait()
            printed = "\n".join(line.rstrip() for line in screen.screen.splitlines()).strip()

        assert re.fullmatch(pattern(shown), printed), f"$ {command}\n{printed}\n\nis not\n\n{shown}"


def test_there_are_lines_to_paste() -> None:
    assert [len([*lines(page)]) for page in OF_COMMANDS] == [7, 3]


@pytest.mark.parametrize("page", OF_COMMANDS)
def test_other_lines_run(
    page: str, environment: dict[str, str], service: ServiceProcess, make_service: MakeService, tmp_path: Path
) -> None:
    with Client(service.url, key="") as client:
        client.submit("echo", {"fail": "x"}, queue="mail", retry={"max_attempts": 1}).wait(timeout=10)
    (tmp_path / "customers.csv").write_text("id,link,when\n1,https://a.example,2027-01-01T00:00:00Z\n")
    (tmp_path / "other").mkdir()
    other = make_service(folder=tmp_path / "other", settings={"store.kind": "memory"})
    other.start()

    for block in blocks_of(page, "sh"):
        text = block.text.replace("http://127.0.0.1:9090", other.url)
        ended = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", text], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert ended.returncode == 0, ended.stderr


def test_every_command_is_on_the_page_and_no_other() -> None:
    named = [name for name in names(PAGE, "command") if " " not in name]

    assert sorted(named) == sorted(COMMANDS)


def test_exit_codes_of_the_page_are_those_of_the_topic() -> None:
    documented = {int(code) for cell, _ in rows(PAGE, "code") for code in cell.split(" · ")}

    assert documented == {int(code) for code in re.findall(r"^ +(\d+)  ", TEXTS["exit-codes"], re.MULTILINE)}


def test_every_topic_has_a_text() -> None:
    assert {*TEXTS} == {*TOPICS}
    assert max(len(line) for text in TEXTS.values() for line in text.splitlines()) <= 120


@pytest.mark.parametrize("text", [*(read(page) for page in OF_COMMANDS), *TEXTS.values()], ids=[*OF_COMMANDS, *TEXTS])
def test_every_option_that_is_named_exists(text: str) -> None:
    known = {option for name in COMMANDS for option in _options(name)} | {"--help"}

    assert {*re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)} <= known


def _options(name: str) -> list[str]:
    if COMMANDS[name].module == "parser":
        return ["--name", "--scopes", "--data"]
    return [option for action in parser_of(name)._actions for option in action.option_strings]
