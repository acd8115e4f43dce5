"""The pages of the guide, and the code blocks on them."""

from __future__ import annotations

import re
import tomllib
from base64 import b64encode
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from tests.support import ROOT

FENCE: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
README: Final = "README.md"
SECRET: Final = f"whsec_{b64encode(bytes(32)).decode()}"
"""Replaces the secret that a page leaves out."""
EVERY: Final = [README, *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))]
GUIDE: Final = [page for page in EVERY if not page.startswith(("docs/recipes/", "docs/moving"))]
"""The pages whose blocks run here. Recipes have their own tests."""
OF_COMMANDS: Final = ("docs/command-line.md", "docs/import-export.md")
"""The pages whose console lines are commands of erelong."""


class Block(NamedTuple):
    """A fenced block of a page."""

    page: str
    line: int
    language: str
    text: str

    @property
    def name(self) -> str:
        """Its page and its first words."""
        return f"{self.page}: {self.text.splitlines()[0]}"


def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def prose(page: str) -> str:
    """Return the text of a page without its code blocks."""
    return FENCE.sub("", read(page))


def blocks(*languages: str) -> list[Block]:
    """Return the blocks in these languages, or all."""
    found = [block for page in GUIDE for block in blocks_of(page)]
    return [block for block in found if not languages or block.language in languages]


def blocks_of(page: str, *languages: str) -> Iterator[Block]:
    text = read(page)
    for match in FENCE.finditer(text):
        if not languages or match[1] in languages:
            yield Block(page, text.count("\n", 0, match.start()) + 1, match[1], match[2].replace("whsec_…", SECRET))


def merged(page: str) -> dict[str, Any]:
    """Return all the settings that a page shows, as one tree."""
    tree: dict[str, Any] = {}
    for block in blocks_of(page, "toml"):
        _lay(tree, tomllib.loads(block.text))
    return tree


def _lay(tree: dict[str, Any], over: dict[str, Any]) -> None:
    for name, value in over.items():
        if isinstance(value, dict) and isinstance(tree.get(name), dict):
            _lay(tree[name], value)
        else:
            tree[name] = value
