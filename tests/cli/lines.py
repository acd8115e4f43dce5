"""Files of jobs, and the jobs that became of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from erelong import Client


def write(file: Path, *jobs: Any) -> str:
    lines = [job if isinstance(job, str) else json.dumps(job) for job in jobs]
    file.write_text("".join(line + "\n" for line in lines))
    return str(file)


def job(queue: str, **fields: Any) -> dict[str, Any]:
    return {"kind": "echo", "delay": 3_600, "queue": queue, **fields}


def stored(client: Client, queue: str) -> list[dict[str, Any]]:
    return [found.params for found in client.list(queue=queue, view="full", limit=1_000)][::-1]
