"""The names of the package: all of them can be imported, those that need a missing package apart."""

from __future__ import annotations

import subprocess
import sys

import erelong
from tests.support import SOURCE

SCRIPT = """
import sys
sys.modules["aiohttp"] = None  # as if it were not installed
from erelong import *
print("Client" in globals(), "AsyncClient" in globals(), "Worker" in globals())
"""


def test_every_name_can_be_imported() -> None:
    assert {"AsyncClient", "Client", "GiveUp", "Worker", "__version__", "kind"} <= {*erelong.__all__}
    for name in erelong.__all__:
        assert getattr(erelong, name) is not None


def test_all_names_can_be_imported_without_aiohttp() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT], env={"PYTHONPATH": str(SOURCE)}, capture_output=True, text=True
    )

    assert ended.stdout.split() == ["True", "False", "False"], ended.stderr
