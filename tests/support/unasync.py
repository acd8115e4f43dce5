"""Makes `client/sync` from `client/aio`, as `python -m tests.support.unasync`; a test compares them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.support import SOURCE

AIO, SYNC = SOURCE / "erelong" / "client" / "aio", SOURCE / "erelong" / "client" / "sync"
MADE = ("client.py", "jobs.py", "kinds.py", "operations.py", "queues.py", "schedules.py", "sender.py")
WORDS = (
    (r"__a(enter|exit)__", r"__\1__"),
    (r"\basync (def|for|with)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\bAsync([A-Z]\w+)", r"\1"),
    (r"\bAbstractAsync", "Abstract"),
    (r"erelong\.client\.aio\b", "erelong.client.sync"),
)


def make(file: Path) -> str:
    """Return the blocking twin of a module."""
    text = file.read_text(encoding="utf-8")
    for pattern, word in WORDS:
        text = re.sub(pattern, word, text)
    name = str(SYNC / file.name)
    for command in (["check", "--select", "I", "--fix-only", "-q"], ["format", "-q"]):
        ruff = [str(Path(sys.executable).with_name("ruff")), *command, "--stdin-filename", name, "-"]
        text = subprocess.run(ruff, input=text, capture_output=True, text=True, check=True).stdout
    return text


if __name__ == "__main__":
    for module in MADE:
        (SYNC / module).write_text(make(AIO / module), encoding="utf-8")
