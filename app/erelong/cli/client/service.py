"""Commands about the service itself: kinds, status, the API key, and any request of the API."""

from __future__ import annotations

import json
import os
import sys
from getpass import getpass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from erelong.cli.client.options import params_of
from erelong.cli.client.running import REFUSED, Usage, client_of, output_of
from erelong.client.errors import Busy
from erelong.client.profile import find_profile, profile_file
from erelong.client.requests import Repeat, Request, send, with_query
from erelong.client.sync.client import Client

if TYPE_CHECKING:
    import argparse

KINDS = ("name", "type", "isolation", "stop")
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


def add(name: str, parser: argparse.ArgumentParser) -> None:
    calls = {"kinds": kinds, "status": status, "whoami": whoami, "api": api, "login": login}
    parser.set_defaults(call=calls[name])
    if name == "kinds":
        parser.add_argument("kind", nargs="?", help="show its params")
    if name == "api":
        parser.add_argument("method", choices=METHODS)
        parser.add_argument("path", help="such as /v1/jobs?state=failed")
        parser.add_argument(
            "items", nargs="*", metavar="NAME=VALUE", help="the body, as the params of submit; - reads it"
        )
    if name == "login":
        parser.add_argument("--name", default="default", help="name of the profile (default)")


def kinds(options: argparse.Namespace) -> int:
    output = output_of(options)
    with client_of(options) as client:
        found = [kind.raw for kind in client.kinds()]
    if options.kind is None:
        output.rows(found, KINDS, name="name")
        return 0
    named = [kind for kind in found if kind["name"] == options.kind]
    if not named:
        raise Usage(f"no kind {options.kind!r}; known: {', '.join(kind['name'] for kind in found)}")
    schema = named[0].get("params_schema") or {}
    if options.json or not schema.get("properties"):
        output.item(named[0], name="name")
        return 0
    required = schema.get("required", [])
    rows = [
        {"param": name, "type": _type(part), "required": name in required, "description": part.get("description", "")}
        for name, part in schema["properties"].items()
    ]
    output.rows(rows, ("param", "type", "required", "description"), name="param")
    print(f"\nerelong submit {options.kind} " + " ".join(f"{name}=…" for name in required), file=sys.stderr)
    return 0


def _type(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(_type(part) for part in schema["anyOf"])
    return str(schema.get("type", "any"))


def status(options: argparse.Namespace) -> int:
    """Print what the service does; exit 1 if a check fails."""
    output = output_of(options)
    with client_of(options) as client:
        stats = client.stats()
    if options.json or options.fields:
        output.item(stats)
    else:
        jobs = stats["jobs"]
        print(f"erelong {stats['version']}, since {output.time(stats['started_at'])}")
        print(f"{', '.join(f'{jobs[state]:,} {state}' for state in ('scheduled', 'due', 'running', 'failed'))}")
        bad = {check: text for check, text in stats.get("checks", {}).items() if not text.startswith("ok")}
        for check, text in bad.items():
            print(f"  {check}: {text}")
        if "checks" in stats and not bad:
            print(f"all {len(stats['checks'])} checks are ok")
    return 0 if stats["ready"] else REFUSED


def whoami(options: argparse.Namespace) -> int:
    with client_of(options) as client:
        output_of(options).item(client.me(), name="name")
        print(f"at {client.url}", file=sys.stderr)
    return 0


def api(options: argparse.Namespace) -> int:
    body = json.load(sys.stdin) if options.items == ["-"] else (params_of(options.items) if options.items else None)
    if body is not None and options.method == "GET":
        request = Request(method="GET", path=with_query(options.path, body))
    else:
        repeat = Repeat.READ if options.method == "GET" else Repeat.UNBEGUN
        request = send(options.method, options.path, body, repeat=repeat)
    with client_of(options) as client:
        answer = client.ask(request)
    sys.stdout.write(answer.body.decode(errors="replace"))
    if answer.body and sys.stdout.isatty():
        print()
    return 0


def login(options: argparse.Namespace) -> int:
    """Test a key, then store it with its address, readable by this user alone."""
    url = find_profile(options.url).url
    key = options.key_file.read_text(encoding="utf-8").strip() if options.key_file else _ask_for_key(url)
    with Client(url, key=key) as client:
        try:
            me = client.me()
        except Busy as error:
            raise Usage(f"{url} cannot check the key now: {error}") from None
    file = profile_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    _write(file, options.name, url, key)
    print(
        f"stored as profile {options.name} in {file}: {me['name'] or 'no name'}, {', '.join(me['scopes'])}",
        file=sys.stderr,
    )
    return 0


def _ask_for_key(url: str) -> str:
    return getpass(f"API key for {url}: ") if sys.stdin.isatty() else sys.stdin.readline().strip()


def _write(file: Path, name: str, url: str, key: str) -> None:
    old = file.read_text(encoding="utf-8") if file.exists() else ""
    header = f"[profiles.{json.dumps(name)}]"
    kept = [part for part in old.split("\n\n") if part.strip() and not part.startswith(header)]
    text = "\n\n".join([*kept, f"{header}\nurl = {json.dumps(url)}\nkey = {json.dumps(key)}\n"])
    new = file.with_name(f"{file.name}.{os.getpid()}")
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as handle:
        handle.write(text)
    new.replace(file)
