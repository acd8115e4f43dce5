"""How the dashboard is served: small, compressed, cached by a digest, and confined by its policy."""

from __future__ import annotations

import gzip
import re
import tomllib

import pytest

from erelong.dashboard.face import STATIC, read_files
from tests.support import ROOT
from tests.support.served import Served

MOST_BYTES = 138_000
MOST_PACKED = 48_000
MOST_FILES = 3
MOST_LINES = 40
FUNCTION = re.compile(
    r"^( *)(?!if |for |while |switch )(?:(?:export )?(?:async )?function|(?:export )?const .*=> [({]|[#\w ]+\(.*\) \{$)"
)
SCRIPTS = sorted(STATIC.glob("*.js"))


async def test_page_names_its_files_by_their_digest(service: Served) -> None:
    answer = await service.get("/")
    digest = read_files().digest

    names = re.findall(r'(?:src|href)="([^"]+)"', answer.body.decode())
    assert (answer.status, answer.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert answer.headers["Cache-Control"] == "no-cache"
    assert {name for name in names if name.startswith("ui/")} == {f"ui/{digest}/{name}" for name in read_files().others}
    assert (await service.get("/", headers={"If-None-Match": answer.headers["ETag"]})).status == 304


async def test_every_file_is_served_compressed_and_for_good(service: Served) -> None:
    files = read_files()
    for name, file in files.others.items():
        answer = await service.get(f"/ui/{files.digest}/{name}", headers={"Accept-Encoding": "identity"})

        assert (answer.status, answer.body) == (200, file.plain)
        assert "immutable" in answer.headers["Cache-Control"]
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert gzip.decompress(file.packed) == answer.body


@pytest.mark.parametrize("path", ["nothing.js", "index.html", "main.js", "..%2Fface.py"])
async def test_unknown_file_is_a_problem(service: Served, path: str) -> None:
    answer = await service.get(f"/ui/{read_files().digest}/{path}")

    assert (answer.status, answer.code) == (404, "no_such_route")


async def test_file_of_another_version_says_to_reload(service: Served) -> None:
    answer = await service.get("/ui/0123456789abcdef/ui.js")

    assert answer.status == 404
    assert "reload the dashboard" in answer.json["detail"]


async def test_policy_permits_only_the_files_of_the_page(service: Served) -> None:
    headers = (await service.get("/")).headers

    policy = dict(part.split(" ", 1) for part in headers["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert re.fullmatch(r"'self' 'sha256-[A-Za-z0-9+/=]{44}'", policy["script-src"])
    assert policy["style-src"] == "'self'"
    assert (policy["require-trusted-types-for"], policy["trusted-types"]) == ("'script'", "'none'")
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"


def test_files_are_few_and_small() -> None:
    files = [read_files().page, *read_files().others.values()]

    assert len(files) <= MOST_FILES
    assert sum(len(file.plain) for file in files) <= MOST_BYTES
    assert sum(len(file.packed) for file in files) <= MOST_PACKED


def test_every_file_is_in_the_package() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    patterns = settings["tool"]["setuptools"]["package-data"]["erelong.dashboard"]

    packaged = {path for pattern in patterns for path in STATIC.parent.glob(pattern)}
    assert packaged == {path for path in STATIC.iterdir() if path.is_file()}


def test_page_loads_one_script_and_one_style_sheet() -> None:
    page = read_files().page.plain.decode()

    assert {*read_files().others} == {"ui.js", "ui.css"}
    assert re.findall(r"<script (.*)></script>", page) == [f'type="module" src="ui/{read_files().digest}/ui.js"']


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_module_is_short_and_inserts_only_text(path: str) -> None:
    text = (STATIC / path).read_text()

    assert text.startswith("/** ")
    assert len(text.splitlines()) <= 400
    assert max(map(len, text.splitlines())) <= 120
    assert longest_function(text) <= MOST_LINES
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|\.style\b", text)
    assert set(re.findall(r"https?://[\w.]+", text)) <= {"http://www.w3.org"}


def longest_function(text: str) -> int:
    """Return how many lines the longest function or method has."""
    lines = text.splitlines()
    longest = 0
    for first, line in enumerate(lines):
        if found := FUNCTION.match(line):
            ends = (number for number in range(first, len(lines)) if re.match(rf"{found[1]}[}})\]]", lines[number]))
            longest = max(longest, next(ends, first) - first + 1)
    return longest
