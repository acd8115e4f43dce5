"""The init process of a container, in its own process namespace: orphans, signals, exit codes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.support import SOURCE

ALONE = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc")
COMMAND = "import sys\nfrom erelong.cli import pid1\nsys.exit(pid1.run(lambda: exec(sys.argv[1])))"

# Leaves its grandchild to the init process, and reports whether it was reaped.
ORPHAN = """
import os, pathlib, subprocess, time
orphan = int(subprocess.run(["sh", "-c", "sleep 0.2 >&2 & echo $!"], stdout=subprocess.PIPE).stdout)
parent = pathlib.Path(f"/proc/{orphan}/stat").read_text().rpartition(")")[2].split()[1]
look_until = time.monotonic() + 5
while os.path.exists(f"/proc/{orphan}") and time.monotonic() < look_until:
    time.sleep(0.01)
print("parent", parent, "and then", "a zombie" if os.path.exists(f"/proc/{orphan}") else "gone")
"""

WAITING = """
import signal, time
signal.signal(signal.{name}, lambda *_: sys.exit(7))
print("ready", flush=True)
time.sleep(30)
"""

Start: TypeAlias = Callable[[str], "subprocess.Popen[str]"]

pytestmark = pytest.mark.real_loop


@pytest.fixture
def start() -> Start:
    """Return a function that starts Python code as the command of an init process in a new namespace."""
    if shutil.which("unshare") is None or subprocess.run([*ALONE, "true"], capture_output=True).returncode != 0:
        pytest.skip("no process namespace here: unshare is missing, or may not make one")
    return lambda code: _start(*ALONE, code=code)


def test_orphan_is_reaped(start: Start) -> None:
    with start(ORPHAN) as process:
        said, _ = process.communicate(timeout=8)

    assert said == "parent 1 and then gone\n"


def test_exit_code_is_that_of_the_command(start: Start) -> None:
    with start("sys.exit(75)") as process:
        assert process.wait(5) == 75


def test_exit_code_encodes_a_signal_as_in_a_shell(start: Start) -> None:
    with start("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)") as process:
        assert process.wait(5) == 128 + signal.SIGKILL


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=["SIGTERM", "SIGINT", "SIGHUP"])
def test_signal_is_passed_on(start: Start, number: signal.Signals) -> None:
    with start(WAITING.format(name=number.name)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        (first,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(first), number)

        assert process.wait(5) == 7


def test_command_is_not_wrapped_outside_of_a_container() -> None:
    with _start(code="import os\nprint(os.getppid())") as process:
        said, _ = process.communicate(timeout=5)

    assert int(said) == os.getpid()


def _start(*before: str, code: str) -> subprocess.Popen[str]:
    command = [*before, sys.executable, "-c", COMMAND, code]
    return subprocess.Popen(command, cwd=SOURCE, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
