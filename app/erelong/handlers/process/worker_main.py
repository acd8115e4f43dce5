"""The program of a worker process: learns where to import from, then answers calls until it is ended.

Started by its path, so that nothing of the service is imported before it knows where to look. Descriptor 3 is its line
to the service; what functions write to 1 and 2 is read by the service and kept on the attempt.
"""

from __future__ import annotations

import json
import sys
from socket import socket

LINE = 3


def main() -> None:
    line = socket(fileno=LINE)
    line.set_inheritable(False)
    with line.makefile("rb") as lines:
        greeting = json.loads(lines.readline() or b"{}")
    sys.path[:] = greeting.pop("path")
    from erelong.handlers.process.worker_loop import WorkerLoop

    WorkerLoop(line=line).serve(**greeting)


if __name__ == "__main__":
    main()
