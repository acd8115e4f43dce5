"""The program of a worker process: receives the import path, then answers calls.

It is started by its file name, so that it imports no module of erelong before it has the import path. Descriptor 3 is
the connection to the service. The service keeps the output of functions on 1 and 2 with the attempt.
"""

from __future__ import annotations

import json
import sys
from socket import socket

CONNECTION = 3


def main() -> None:
    connection = socket(fileno=CONNECTION)
    connection.set_inheritable(False)
    with connection.makefile("rb") as lines:
        greeting = json.loads(lines.readline() or b"{}")
    sys.path[:] = greeting.pop("path")
    from erelong.handlers.process.worker_loop import WorkerLoop

    WorkerLoop(connection=connection).serve(**greeting)


if __name__ == "__main__":
    main()
