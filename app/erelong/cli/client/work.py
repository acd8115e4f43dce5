"""The command that runs a pull worker of a module."""

from __future__ import annotations

import logging
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from erelong.cli.client.options import seconds
from erelong.cli.client.running import Usage

if TYPE_CHECKING:
    import argparse


def add(_: str, parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "worker", metavar="MODULE:WORKER", help="such as thumbnails:worker; the working folder is searched"
    )
    parser.add_argument("--concurrency", type=int, metavar="N", help="jobs at a time")
    parser.add_argument("--drain", type=seconds, metavar="DURATION", help="time for running jobs after SIGTERM")
    parser.set_defaults(call=work)


def work(options: argparse.Namespace) -> int:
    try:
        from erelong.client.aio.client import AsyncClient
        from erelong.client.worker.worker import Worker
    except ModuleNotFoundError as error:
        raise Usage(str(error)) from None
    worker = _load(options.worker)
    if not isinstance(worker, Worker):
        raise Usage(f"{options.worker} is no erelong.Worker but {worker!r}")
    if options.concurrency is not None:
        worker.concurrency = options.concurrency
    if options.drain is not None:
        worker.drain = options.drain
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    key = None if options.key_file is None else options.key_file.read_text(encoding="utf-8").strip()
    return worker.run(
        lambda: AsyncClient(options.url, key=key, profile=options.profile, timeout=options.request_timeout)
    )


def _load(path: str) -> Any:
    module, colon, name = path.partition(":")
    if not (module and colon and name):
        raise Usage(f"{path!r}: write MODULE:WORKER, such as thumbnails:worker")
    sys.path.insert(0, str(Path.cwd()))
    try:
        return getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        raise Usage(f"no module {error.name!r} in {Path.cwd()} or the environment") from None
    except AttributeError:
        raise Usage(f"the module {module} has no {name!r}") from None
