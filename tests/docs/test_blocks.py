"""Every code block of README and the guide is checked by the program that reads its language, as far as that can be."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # PyYAML has no annotations

from erelong.cli.parser import _parser
from erelong.settings.load import load
from tests.bench.__main__ import _parser as bench_parser
from tests.docs.pages import GUIDE, Block, blocks, prose
from tests.support import ROOT

COMMANDS = {"serve", "check-config", "health", "backup", "restore", "new-key"}
PROGRAMS = {"curl", "docker", "echo", "erelong", "export", "make", "python3", "useradd", "/opt/erelong/bin/pip"}
RUN_BY = {
    "README.md": "test_programs",
    "docs/kinds.md": "test_programs",
    "docs/webhooks.md": "tests/handlers/http/test_signing",
    "docs/workers.md": "test_programs",
}
"""Where the Python of a page is run."""


def check_toml(block: Block, folder: Path) -> None:
    file = folder / "config.toml"
    file.write_text(block.text)
    load(file, {})


def check_python(block: Block, _: Path) -> None:
    assert block.page in RUN_BY
    compile(block.text, block.name, "exec")


def check_console(block: Block, _: Path) -> None:
    assert block.text.startswith(("$ curl ", "$ printf "))  # `test_console` pastes them


def check_json(block: Block, _: Path) -> None:
    assert json.loads(block.text)


def check_shell(block: Block, _: Path) -> None:
    subprocess.run(["bash", "-n", "-c", block.text], check=True)
    for line in block.text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        assert words[0] in PROGRAMS, f"no program that is known here: {line}"
        match words:
            case ["make", target, *_]:
                assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
                if target == "bench" and len(words) > 2:
                    bench_parser().parse_args(words[2].removeprefix("ARGS=").split())
            case ["docker", *given]:
                check_docker(given)
            case ["export", *settings]:
                check_settings(dict(setting.split("=", 1) for setting in settings))
            case _:
                pass
        check_command(words)


def check_command(words: list[str]) -> None:
    """Read the part of a line that is a command of erelong, as erelong would."""
    for number, word in enumerate(words):
        if word in COMMANDS and "erelong" in words[:number]:
            _parser().parse_args(words[number:])


def check_settings(environment: dict[str, str]) -> None:
    load(None, {name: "/dev/null" if name.endswith("_FILE") else value for name, value in environment.items()})


def check_docker(given: list[str]) -> None:
    """Hold its options against its own help, where there is one."""
    assert given[0] in {"build", "compose", "cp", "exec", "run"}
    if shutil.which("docker") is None or given[0] == "compose":
        return
    asked = subprocess.run(["docker", given[0], "--help"], capture_output=True, text=True)
    if asked.returncode == 0:
        options = {word for word in given if re.fullmatch(r"--?[a-z-]+", word)} - {"-m"}  # which is of Python
        assert options <= {*re.findall(r"(?<!\S)--?[a-z-]+", asked.stdout)}


def check_yaml(block: Block, _: Path) -> None:
    tree = yaml.safe_load(block.text)
    assert tree.keys() in ({"services"}, {"groups"})
    for service in tree.get("services", {}).values():
        compose = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]["erelong"]
        assert service.keys() <= compose.keys()
        check_settings(service["environment"])
    rules = [rule for group in tree.get("groups", []) for rule in group["rules"]]
    for rule in rules:
        assert rule.keys() == {"alert", "expr", "for"}
        assert {*re.findall(r"erelong_\w+", rule["expr"])} <= {*re.findall(r"erelong_\w+", prose("docs/metrics.md"))}


def check_unit(block: Block, folder: Path) -> None:
    words = re.findall(r"^ExecStart=(.*)$", block.text, re.MULTILINE)[0].split()
    _parser().parse_args(words[1:])
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    unit = folder / "erelong.service"
    unit.write_text(block.text.replace(words[0], "/bin/true"))
    verified = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True)
    assert str(unit) not in verified.stderr, verified.stderr


def check_dockerfile(block: Block, folder: Path) -> None:
    lint = Path(sys.executable).with_name("hadolint")
    if not lint.exists():
        pytest.skip("hadolint is not installed")
    file = folder / "Dockerfile"
    file.write_text(block.text)
    subprocess.run([lint, "--failure-threshold=error", file], check=True)


def check_nginx(block: Block, _: Path) -> None:
    lines = [line.partition("#")[0].strip() for line in block.text.splitlines()]
    assert all(line.endswith((";", "{", "}")) for line in lines)
    assert block.text.count("{") == block.text.count("}")


CHECKS: dict[str, Callable[[Block, Path], Any]] = {
    "console": check_console,
    "dockerfile": check_dockerfile,
    "ini": check_unit,
    "json": check_json,
    "nginx": check_nginx,
    "python": check_python,
    "sh": check_shell,
    "toml": check_toml,
    "yaml": check_yaml,
}


@pytest.mark.parametrize("block", blocks(), ids=lambda block: f"{block.page}:{block.line}")
def test_block_is_valid(block: Block, tmp_path: Path) -> None:
    CHECKS[block.language](block, tmp_path)


@pytest.mark.parametrize("page", sorted(RUN_BY))
def test_page_has_one_python_block_which_is_run(page: str) -> None:
    assert len([block for block in blocks("python") if block.page == page]) == 1


@pytest.mark.parametrize("page", GUIDE)
def test_commands_in_the_text_are_valid(page: str) -> None:
    for code in re.findall(r"`([^`]*\berelong [^`]*)`", prose(page)):
        check_command(code.split())


def test_no_code_stands_outside_of_a_fence() -> None:
    """An indented block would be run by nobody."""
    indented = [block.page for block in blocks() if re.search(r"\n\n {4}\S", prose(block.page))]

    assert indented == []
