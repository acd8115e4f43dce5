"""The command about operations on many jobs."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from erelong.cli.client.running import client_of, output_of

if TYPE_CHECKING:
    import argparse

COLUMNS = ("id", "action", "state", "matches", "done", "skipped", "failed", "created_at")


def add(_: str, parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", nargs="?", metavar="ID", help="show this one")
    parser.add_argument("--stop", action="store_true", help="stop it; finished changes stay")
    parser.add_argument("--limit", type=int, default=20, help="operations to list (20)")
    parser.set_defaults(call=show)


def show(options: argparse.Namespace) -> int:
    output = output_of(options)
    with client_of(options) as client:
        if options.id is None:
            found = (operation.raw for operation in client.operations.list())
            output.rows(islice(found, options.limit), COLUMNS)
            return 0
        operation = client.operations.get(options.id)
        output.item((operation.cancel() if options.stop else operation).raw)
    return 0
