"""The commands about a pull worker of a module: run it, print its kinds."""

from __future__ import annotations

import json
import logging
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from erelong.cli.console.options import seconds
from erelong.cli.console.running import Usage
from erelong.client.drafts import write_fields

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from erelong.client.worker.worker import Worker

RELOADED: Final = "ERELONG_RELOADED"
"""The variable by which a process knows that it is the one that works."""


def add(name: str, parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "worker", metavar="MODULE:WORKER", help="such as thumbnails:worker; the working folder is searched"
    )
    if name == "schema":
        parser.set_defaults(call=schema)
        return
    parser.add_argument("--concurrency", type=int, metavar="N", help="jobs at a time")
    parser.add_argument("--drain", type=seconds, metavar="DURATION", help="time for running jobs after SIGTERM")
    parser.add_argument("--register", action="store_true", help="declare the kinds to the service first")
    parser.add_argument("--once", action="store_true", help="end when no job is due")
    parser.add_argument("--reload", action="store_true", help="start again when a Python file has changed")
    parser.add_argument("--log-format", choices=("text", "json"), default="text", help="format of the log (text)")
    parser.set_defaults(call=work)


def work(options: argparse.Namespace) -> int:
    if options.reload and not os.environ.get(RELOADED):
        return _reload()
    worker = _worker(options.worker)
    if options.concurrency is not None:
        worker.concurrency = options.concurrency
    if options.drain is not None:
        worker.drain = options.drain
    worker.once |= options.once
    _log(options.log_format)
    from erelong.client.aio.client import AsyncClient

    key = None if options.key_file is None else options.key_file.read_text(encoding="utf-8").strip()
    return worker.run(
        lambda: AsyncClient(options.url, key=key, profile=options.profile, timeout=options.request_timeout),
        register=options.register,
    )


def schema(options: argparse.Namespace) -> int:
    """Print the kinds of a worker as lines of config.toml."""
    from erelong.client.schemas import declaration

    tables = [_table(kind.name, declaration(kind)) for kind in _worker(options.worker).kinds.values()]
    print("\n".join(tables), end="")
    return 0


def _table(name: str, declared: Mapping[str, Any]) -> str:
    """Return a declaration as a table of config.toml."""
    key = name if name.replace("-", "").replace("_", "").isalnum() else json.dumps(name)
    fields = {"pull": True, **write_fields(declared)}
    return "\n".join([f"[kinds.{key}]", *(f"{field} = {_toml(value)}" for field, value in fields.items())]) + "\n"


def _toml(value: Any) -> str:
    """Return JSON as an inline value of TOML, which has no null."""
    if isinstance(value, dict):
        parts = [f"{json.dumps(name)} = {_toml(part)}" for name, part in value.items() if part is not None]
        return "{ " + ", ".join(parts) + " }" if parts else "{}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value, ensure_ascii=False)


def _worker(path: str) -> Worker:
    try:
        from erelong.client.worker.worker import Worker
    except ModuleNotFoundError as error:
        raise Usage(str(error)) from None
    worker = _load(path)
    if not isinstance(worker, Worker):
        raise Usage(f"{path} is not an erelong.Worker, but {worker!r}")
    return worker


def _log(form: str) -> None:
    from erelong.client.worker.log import JsonFormatter

    handler = logging.StreamHandler(sys.stderr)
    text = logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    handler.setFormatter(JsonFormatter() if form == "json" else text)
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def _reload() -> int:
    """Run this command in a process of its own, again after each change."""
    from erelong.client.worker.reloading import Reloader

    command = [sys.executable, "-m", "erelong", *sys.argv[1:]]
    return Reloader(command=command, environment={RELOADED: "1"}, folder=Path.cwd()).run()


def _load(path: str) -> Any:
    module, colon, name = path.partition(":")
    if not (module and colon and name):
        raise Usage(f"{path!r}: write MODULE:WORKER, such as thumbnails:worker")
    sys.path.insert(0, str(Path.cwd()))
    try:
        return getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        if module.endswith(".py"):
            right = f"{module.removesuffix('.py').replace('/', '.')}:{name}"
            raise Usage(f"{path} names a file: give the module, {right}") from None
        raise Usage(f"no module {error.name!r} in {Path.cwd()} or the environment") from None
    except AttributeError:
        raise Usage(f"the module {module} has no {name!r}") from None
