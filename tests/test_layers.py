"""Every module imports only from lower layers, by the contract in pyproject.toml."""

import os
import subprocess
import sys

from tests.support import ROOT, SOURCE

# In its own process: the linter reconfigures logging and would silence ours.
LINT = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True, no_logo=True))"


def test_modules_import_only_from_lower_layers() -> None:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    linted = subprocess.run(
        [sys.executable, "-c", LINT], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )

    assert linted.returncode == 0, linted.stdout + linted.stderr
