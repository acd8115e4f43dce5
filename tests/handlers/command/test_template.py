"""Declared commands: their words, placeholders and patterns."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from erelong.handlers.command.template import CommandLine, read_command_line
from erelong.handlers.python.signature import InvalidKind

ENVIRONMENT = {"PATH": "/usr/bin:/bin"}
PATTERNS = {"database": "[a-z0-9_]{1,63}", "n": r"\d+|all"}


def read(*command: str, patterns: dict[str, str] | None = PATTERNS) -> CommandLine:
    return read_command_line(command, patterns, ENVIRONMENT)


def refusal(*command: str, patterns: dict[str, str] | None = PATTERNS) -> str:
    with pytest.raises(InvalidKind) as refused:
        read(*command, patterns=patterns)
    return str(refused.value)


def faults(params: object, patterns: dict[str, str] | None = PATTERNS) -> list[str]:
    return [f"{fault.pointer} {fault.detail}" for fault in read("true", patterns=patterns).find_faults(params)]


def test_placeholders_are_filled_and_doubled_braces_are_braces() -> None:
    line = read("echo", "--file=/b/{database}.{n}", "{database}", "{{print}}", "plain", "", "a}}b")

    assert line.fill({"database": "x{y}", "n": "1"}) == [
        "echo", "--file=/b/x{y}.1", "x{y}", "{print}", "plain", "", "a}b",
    ]  # fmt: skip


def test_value_of_a_placeholder_stays_one_word() -> None:
    line = read("echo", "{x}", patterns={"x": "(?s:.*)"})

    assert line.fill({"x": "a b; rm -rf / $(id) \n 'c"}) == ["echo", "a b; rm -rf / $(id) \n 'c"]


def test_program_is_found_on_its_path() -> None:
    assert read("true").path in ("/usr/bin/true", "/bin/true")
    assert read("/bin/sh").path == "/bin/sh"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("{database}",), '"{database}" is the program, which params cannot fill: name a program'),
        (("/opt/{n}/run",), '"/opt/{n}/run" is the program, which params cannot fill'),
        (
            ("true", "{other}"),
            '"{other}" has no pattern: add other = "[a-z0-9]{1,20}" to its params; write a placeholder',
        ),
        (
            ("true", "{print $1}"),
            '"{print $1}" has a placeholder that is not a name; write a placeholder as "{name}", a brace',
        ),
        (("true", "{}"), '"{}" has a placeholder that is not a name'),
        (("true", "{n:>3}"), '"{n:>3}" has a placeholder that is not a name'),
        (("true", "{n!r}"), '"{n!r}" has a placeholder that is not a name'),
        (("true", "{n.real}"), '"{n.real}" has a placeholder that is not a name'),
        (("true", "a}"), "\"a}\" cannot be read: Single '}' encountered"),
        (("true", "{n"), "\"{n\" cannot be read: expected '}'"),
        (("true", "a\0b"), "one of its words has a NUL character"),
        (("no-such-program",), '"no-such-program" is missing on the PATH, /usr/bin:/bin, or not executable'),
        (("/no/such/program",), '"/no/such/program" is missing, or not executable'),
        (("./run.sh",), '"./run.sh" is a relative path: write an absolute one'),
    ],
)
def test_command_that_cannot_be_run_is_refused(command: tuple[str, ...], message: str) -> None:
    assert refusal(*command).startswith(message)


def test_placeholder_without_any_patterns_is_refused() -> None:
    assert refusal("true", "{database}", patterns=None).startswith('"{database}" has no pattern')


def test_invalid_pattern_is_refused() -> None:
    assert refusal("true", patterns={"x": "("}).startswith('params.x = "(" is not a regular expression: missing )')


def test_file_that_is_not_executable_is_refused(tmp_path: Path) -> None:
    program = tmp_path / "run"
    program.write_text("#!/bin/sh\n")
    message = refusal(str(program))
    program.chmod(stat.S_IRWXU)

    assert message.endswith("is missing, or not executable")
    assert read(str(program)).path == os.fspath(program)


@pytest.mark.parametrize(
    ("params", "details"),
    [
        ({"database": "shop", "n": "12"}, []),
        ({"database": "shop"}, ["/n is required"]),
        ({"database": "shop", "n": 12}, ["/n should be a string, not 12"]),
        ({"database": "shop", "n": None}, ["/n should be a string, not null"]),
        (
            {"database": "shop; rm", "n": "12\n"},
            [
                '/database should match the pattern "[a-z0-9_]{1,63}", not "shop; rm"',
                '/n should match the pattern "\\d+|all", not "12\\n"',
            ],
        ),
        ({"database": "", "n": "1all"}, ["/database should match", "/n should match"]),
        ({"database": "a", "n": "1", "x/y": 1}, ["/x~1y is unknown; known fields: database, n"]),
        ([], [" should be an object, not a list"]),
    ],
)
def test_params_must_match_their_patterns_as_a_whole(params: object, details: list[str]) -> None:
    actual = faults(params)

    assert len(actual) == len(details)
    assert all(fault.startswith(start) for fault, start in zip(actual, details, strict=True))


def test_no_pattern_admits_a_nul_character() -> None:
    assert len(faults({"x": "a\0b"}, patterns={"x": "(?s:.*)"})) == 1


def test_faults_are_bounded() -> None:
    assert len(faults({f"x{number}": 1 for number in range(100)})) == 20


def test_without_patterns_any_object_is_accepted() -> None:
    assert faults({"anything": [1, {"at": "all"}]}, patterns=None) == []
    assert read("true", patterns=None).schema == {"type": "object"}


def test_schema_shows_the_patterns() -> None:
    pattern: dict[str, Any] = {"type": "string", "pattern": r"^(?:\d+|all)$"}

    assert read("true", patterns={"n": r"\d+|all"}).schema == {
        "type": "object",
        "properties": {"n": pattern},
        "required": ["n"],
        "additionalProperties": False,
    }
