"""Each code block of README and the guide is checked by a program of its language, as far as possible."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]  # PyYAML has no annotations

from erelong.cli import commands
from erelong.cli.commands import parser_of
from erelong.cli.parser import parser_of as parser_of_service
from erelong.settings.load import load
from erelong.settings.section import ConfigError
from tests.bench.__main__ import _parser as bench_parser
from tests.docs.pages import GUIDE, OF_COMMANDS, Block, blocks, prose
from tests.support import ROOT
from tests.support.needs import report_missing

COMMANDS = {"serve", "check-config", "health", "backup", "restore", "copy", "new-key"}
CLIENT_COMMANDS = commands.COMMANDS.keys() - COMMANDS
PROGRAMS = {
    *("curl", "docker", "echo", "erelong", "export", "make", "mkdir", "python3", "useradd"),
    "/opt/erelong/bin/pip",
}
RUN_BY = {
    "README.md": "test_programs",
    "docs/client.md": "test_client",
    "docs/executor.md": "test_client",
    "docs/testing.md": "test_client",
    "docs/python-workers.md": "test_client",
    "docs/events.md": "test_events",
    "docs/kinds.md": "test_programs",
    "docs/webhooks.md": "tests/handlers/http/test_signing",
    "docs/workers.md": "test_programs",
}
"""The test that runs the programs of a page."""


Problems = Iterator[str]


def check_toml(block: Block, folder: Path) -> Problems:
    file = folder / "config.toml"
    file.write_text(block.text)
    yield from check_settings(file, {})


def check_python(block: Block, _: Path) -> Problems:
    if block.page not in RUN_BY:
        yield f"no test runs the Python of {block.page}"
    try:
        compile(block.text, block.name, "exec")
    except SyntaxError as error:
        yield str(error)


def check_script(block: Block, _: Path) -> Problems:
    if block.page not in RUN_BY:
        yield f"no test runs the JavaScript of {block.page}"


def check_stream(block: Block, _: Path) -> Problems:
    for line in filter(None, block.text.splitlines()):
        if not re.match(r"(id|event|data|retry): \S|:", line):
            yield f"not a line of an event stream: {line}"


def check_console(block: Block, _: Path) -> Problems:
    commands = ("$ erelong ", "$ printf ") if block.page in OF_COMMANDS else ("$ curl ", "$ printf ")
    if not block.text.startswith(commands):  # `test_console` and `test_command_line` paste these
        yield f"no test pastes {block.text.splitlines()[0]}"


def check_nothing(block: Block, _: Path) -> Problems:
    yield from ()


def check_json(block: Block, _: Path) -> Problems:
    try:
        json.loads(block.text)
    except ValueError as error:
        yield str(error)


def check_shell(block: Block, _: Path) -> Problems:
    yield from run("bash", "-n", "-c", block.text)
    for line in block.text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if not words:
            continue
        if words[0] not in PROGRAMS:
            yield f"unknown program: {line}"
        match words:
            case ["make", *given]:
                yield from check_make(*given)
            case ["docker", *given]:
                yield from check_docker(*given)
            case ["export", *settings]:
                yield from check_environment(dict(setting.split("=", 1) for setting in settings))
            case _:
                pass
        yield from check_command(words)


def check_command(words: list[str]) -> Problems:
    """Parse the part of a line that is a command of erelong, as erelong would."""
    for number, word in enumerate(words):
        if word in COMMANDS and "erelong" in words[:number]:
            yield from parse(parser_of_service(word), words[number + 1 :])
        elif word in CLIENT_COMMANDS and words[number - 1] == "erelong":
            end = words.index("|", number) if "|" in words[number:] else len(words)
            yield from parse(parser_of(word), words[number + 1 : end])


def parse(parser: ArgumentParser, words: list[str]) -> Problems:
    try:
        parser.parse_args(words)
    except SystemExit as error:
        if error.code:
            yield f"invalid options: {shlex.join(words)}"


def check_settings(file: Path | None, environment: dict[str, str]) -> Problems:
    try:
        load(file, environment)
    except ConfigError as error:
        yield from error.problems


def check_environment(environment: dict[str, str]) -> Problems:
    files = {name: "/dev/null" for name in environment if name.endswith("_FILE")}
    yield from check_settings(None, environment | files)


def check_make(target: str, *given: str) -> Problems:
    if not re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE):
        yield f"no target {target} in the Makefile"
    if target == "bench" and given:
        yield from parse(bench_parser(), given[0].removeprefix("ARGS=").split())


def check_docker(command: str, *given: str) -> Problems:
    """Compare its options with its own help, where docker is installed."""
    if command not in {"build", "compose", "cp", "exec", "run", "start", "stop"}:
        yield f"unknown command: docker {command}"
    if shutil.which("docker") is None or command == "compose":
        return
    asked = subprocess.run(["docker", command, "--help"], capture_output=True, text=True)
    options = {word for word in given if re.fullmatch(r"--?[a-z-]+", word)} - {"-m"}  # an option of Python
    if asked.returncode == 0:
        yield from sorted(options - {*re.findall(r"(?<!\S)--?[a-z-]+", asked.stdout)})


def check_yaml(block: Block, _: Path) -> Problems:
    tree = yaml.safe_load(block.text)
    if tree.keys() not in ({"services"}, {"groups"}):
        yield f"neither services nor alerts: {[*tree]}"
    for service in tree.get("services", {}).values():
        compose = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]["erelong"]
        yield from service.keys() - compose.keys()
        yield from check_environment(service["environment"])
    for rule in [rule for group in tree.get("groups", []) for rule in group["rules"]]:
        yield from rule.keys() ^ {"alert", "expr", "for"}
        yield from {*re.findall(r"erelong_\w+", rule["expr"])} - {*re.findall(r"erelong_\w+", prose("docs/metrics.md"))}


def check_unit(block: Block, folder: Path) -> Problems:
    words = re.findall(r"^ExecStart=(.*)$", block.text, re.MULTILINE)[0].split()
    yield from parse(parser_of_service(words[1]), words[2:])
    if shutil.which("systemd-analyze") is None:
        report_missing("NOT CHECKED: the unit needs systemd-analyze: apt-get install systemd")
    unit = folder / "erelong.service"
    unit.write_text(block.text.replace(words[0], "/bin/true"))
    verified = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True)
    yield from [line for line in verified.stderr.splitlines() if str(unit) in line]


def check_dockerfile(block: Block, folder: Path) -> Problems:
    lint = Path(sys.executable).with_name("hadolint")
    if not lint.exists():
        report_missing("NOT CHECKED: the Dockerfile needs hadolint, of requirements-dev.txt")
    file = folder / "Dockerfile"
    file.write_text(block.text)
    yield from run(str(lint), "--failure-threshold=error", str(file))


def check_nginx(block: Block, _: Path) -> Problems:
    lines = [line.partition("#")[0].strip() for line in block.text.splitlines()]
    yield from [f"not closed: {line}" for line in lines if not line.endswith((";", "{", "}"))]
    if block.text.count("{") != block.text.count("}"):
        yield "braces do not match"


def run(*command: str) -> Problems:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        yield done.stdout + done.stderr


CHECKS: dict[str, Callable[[Block, Path], Problems]] = {
    "console": check_console,
    "dockerfile": check_dockerfile,
    "ini": check_unit,
    "js": check_script,
    "json": check_json,
    "nginx": check_nginx,
    "python": check_python,
    "sh": check_shell,
    "sse": check_stream,
    "toml": check_toml,
    "text": check_nothing,
    "yaml": check_yaml,
}


@pytest.mark.parametrize("block", blocks(), ids=lambda block: f"{block.page}:{block.line}")
def test_block_is_valid(block: Block, tmp_path: Path) -> None:
    problems = [*CHECKS[block.language](block, tmp_path)]

    assert problems == []


@pytest.mark.parametrize("page", sorted(RUN_BY))
def test_every_python_block_of_a_page_is_run(page: str) -> None:
    number = {"README.md": 3, "docs/testing.md": 2}.get(page, 1)  # README: first steps, a module and a test

    assert len([block for block in blocks("python") if block.page == page]) == number


@pytest.mark.parametrize("page", GUIDE)
def test_commands_in_the_text_are_valid(page: str) -> None:
    commands = re.findall(r"`([^`]*\berelong [^`]*)`", prose(page))

    problems = [problem for command in commands for problem in check_command(command.split())]

    assert problems == []


def test_every_code_block_is_fenced() -> None:
    """No test would run an indented block."""
    indented = [block.page for block in blocks() if re.search(r"\n\n {4}\S", prose(block.page))]

    assert indented == []
