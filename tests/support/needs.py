"""What tests need beside Python: where it is missing, the test is skipped on a laptop and fails in CI."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def report_missing(need: str) -> NoReturn:
    """Skip the test and say what it needs; under CI, which installs all of that, fail it."""
    if os.environ.get("CI"):
        pytest.fail(need)
    pytest.skip(need)
