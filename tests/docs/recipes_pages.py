"""The recipe pages as the tests see them: their blocks of code, each with the file it is meant for."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from tests.support import ROOT

FOLDER = ROOT / "docs" / "recipes"
MOVING = ROOT / "docs" / "moving.md"
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE_NAME = re.compile(r"# ([\w/]+\.(?:py|toml))\n")


class NoRunnerError(Exception):
    """A block that no test can run."""


class Block(NamedTuple):
    """One fenced block; `file` is the name in its first line, empty for console lines."""

    language: str
    text: str
    file: str


class Page(NamedTuple):
    """A recipe: Python files to write, settings of the service, console lines to run, in the order of the page."""

    name: str
    blocks: list[Block]

    @property
    def modules(self) -> dict[str, str]:
        return {block.file: block.text for block in self.blocks if block.language == "python"}

    @property
    def settings(self) -> str:
        return "\n".join(block.text for block in self.blocks if block.language == "toml")

    @property
    def consoles(self) -> list[str]:
        return [block.text for block in self.blocks if block.language == "console"]

    def write(self, folder: Path) -> None:
        """Write the Python files of the page, with the packages that they need around them."""
        for name, text in self.modules.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            for parent in path.parents:
                if parent == folder:
                    break
                (parent / "__init__.py").touch()


def parse(name: str, text: str) -> Page:
    """Return the blocks of a page; raise NoRunnerError for one that is neither a named file nor console lines."""
    blocks = []
    for language, body in FENCE.findall(text):
        file = FILE_NAME.match(body)
        match language:
            case "console" if body.startswith("$ "):
                blocks.append(Block(language, body, ""))
            case "python" | "toml" if file and file[1].endswith(".py" if language == "python" else ".toml"):
                blocks.append(Block(language, body, file[1]))
            case _:
                raise NoRunnerError(f"{name}: no test runs the {language or 'unnamed'} block {body[:60]!r}")
    if text.count("```") != 2 * len(blocks):
        raise NoRunnerError(f"{name}: a fence is indented or not closed, so its block is not run")
    return Page(name, blocks)


def read(name: str) -> Page:
    path = FOLDER / f"{name}.md"
    return parse(path.name, path.read_text(encoding="utf-8"))


def names() -> list[str]:
    """Return the names of all recipes."""
    return sorted(path.stem for path in FOLDER.glob("*.md") if path.name != "README.md")
