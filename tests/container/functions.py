"""Functions that the containers of the tests run: a user's own kinds."""

import subprocess


def leave_orphan() -> int:
    """Start a process that outlives its parent, and tell its number."""
    shell = subprocess.run(["sh", "-c", "sleep 0.3 >/dev/null & echo $!"], stdout=subprocess.PIPE, check=True)
    return int(shell.stdout)
