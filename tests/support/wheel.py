"""The wheel of the checkout, and the packages that its extras name."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support import ROOT
from tests.support.needs import report_missing

PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")


def build(folder: Path) -> Path:
    """Build the wheel in an empty folder; return its file."""
    tree = folder / "tree"
    shutil.copytree(ROOT / "app", tree / "app", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    built = subprocess.run([*PIP, "wheel", "--no-deps", "--wheel-dir", folder, tree], capture_output=True, text=True)
    if built.returncode:
        report_missing(f"NOT TESTED: the wheel needs setuptools from an index to be built: {built.stderr[-300:]}")
    (wheel,) = folder.glob("*.whl")
    return wheel


def install(wheel: Path, folder: Path) -> Path:
    """Make an environment that has the wheel and nothing else; return its folder of programs."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    subprocess.run([*PIP, "--python", python, "install", "--no-index", "--no-deps", wheel], check=True)
    return python.parent


def packages_of(extra: str, environment: Path, folder: Path) -> Path:
    """Fill a folder with the packages that an extra names and what these need, and no other of the checkout.

    `environment` is the folder of programs of an environment that has the wheel.
    """
    folder.mkdir()
    (metadata,) = environment.parent.glob("lib/*/site-packages/erelong-*.dist-info")
    left = [*_required(Distribution.at(metadata), extra)]
    known: set[str] = set()
    while left:
        name = left.pop()
        if name in known:
            continue
        known.add(name)
        found = distribution(name)
        left += _required(found, "")
        for top in {file.parts[0] for file in found.files or () if file.parts[0] not in ("..", "__pycache__")}:
            os.symlink(str(found.locate_file(top)), folder / top)
    return folder


def _required(package: Distribution, extra: str) -> Iterator[str]:
    for text in package.requires or ():
        requirement = Requirement(text)
        wanted = requirement.marker is None or requirement.marker.evaluate({"extra": extra})
        if wanted:
            yield canonicalize_name(requirement.name)
