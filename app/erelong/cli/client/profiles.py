"""Commands about the address and the key in use: login, logout, whoami, open."""

from __future__ import annotations

import json
import os
import sys
import tomllib
from getpass import getpass
from typing import TYPE_CHECKING, Any, Final

from erelong.cli.console.running import Usage, client_of, output_of
from erelong.client.errors import Busy
from erelong.client.profile import find_profile, profile_file
from erelong.client.requests import segment
from erelong.client.sync.client import Client

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping
    from pathlib import Path

DEFAULT: Final = "default"


def add(name: str, parser: argparse.ArgumentParser) -> None:
    calls = {"login": login, "logout": logout, "whoami": whoami, "open": open_dashboard}
    parser.set_defaults(call=calls[name])
    if name in ("login", "logout"):
        parser.add_argument("--name", help="name of the profile; without it, that of --profile, or default")
    if name == "login":
        parser.add_argument("--confirm", action="store_true", help="ask before each command that changes something")
    if name == "open":
        parser.add_argument("id", nargs="?", metavar="ID", help="open this job")
        parser.add_argument("--print", action="store_true", help="only print the address")


def login(options: argparse.Namespace) -> int:
    """Test a key, then store it with its address, readable by this user alone."""
    name, stored = options.name or options.profile or DEFAULT, _read_profiles()
    known = os.environ.get("ERELONG_URL") or stored.get(name, {}).get("url")
    url = find_profile(options.url or known, "").url
    key = options.key_file.read_text(encoding="utf-8").strip() if options.key_file else _ask_for_key(url)
    with Client(url, key=key, timeout=options.request_timeout) as client:
        try:
            me = client.me()
        except Busy as error:
            raise Usage(f"{url} cannot check the key now: {error}") from None
    profile = {"url": url, **({"key": key} if key else {}), **({"confirm": True} if options.confirm else {})}
    file = _write_profile(name, profile)
    who = "without a key" if me["anonymous"] else f"as {me['name']}"
    print(f"profile {name} in {file}: {url} {who}, scopes: {', '.join(me['scopes'])}", file=sys.stderr)
    if key and me["anonymous"]:
        print("erelong: this service asks for no key: the one that you gave is stored, but not tested", file=sys.stderr)
    return 0


def _ask_for_key(url: str) -> str:
    if sys.stdin.isatty():
        return getpass(f"API key for {url} (empty for none): ").strip()
    return sys.stdin.readline().strip()


def logout(options: argparse.Namespace) -> int:
    name, stored = options.name or options.profile or DEFAULT, _read_profiles()
    if name not in stored:
        raise Usage(f"no profile {name!r} in {profile_file()}; known: {', '.join(stored) or 'none'}")
    file = _write_profile(name, None)
    print(f"profile {name} removed from {file}; the service still accepts its key", file=sys.stderr)
    return 0


def whoami(options: argparse.Namespace) -> int:
    with client_of(options) as client:
        output_of(options).item({**client.me(), "url": client.url}, name="name")
    return 0


def open_dashboard(options: argparse.Namespace) -> int:
    url = find_profile(options.url, "", options.profile).url
    address = f"{url}/" + (f"#/jobs/{segment(options.id)}" if options.id else "")
    if options.print:
        print(address)
        return 0
    import webbrowser

    if not webbrowser.open(address):
        raise Usage(f"no browser was found; open {address}")
    print(f"opened {address}", file=sys.stderr)
    return 0


# the file of profiles


def _read_profiles() -> dict[str, Any]:
    return _profiles_in(_text())


def _text() -> str:
    file = profile_file()
    return file.read_text(encoding="utf-8") if file.is_file() else ""


def _profiles_in(text: str) -> dict[str, Any]:
    try:
        profiles: dict[str, Any] = tomllib.loads(text).get("profiles", {})
    except tomllib.TOMLDecodeError as error:
        raise Usage(f"{profile_file()} is not valid TOML: {error}") from None
    return profiles


def _write_profile(name: str, profile: Mapping[str, Any] | None) -> Path:
    """Replace one profile, or remove it, and leave everything else in the file as somebody wrote it."""
    file, old = profile_file(), _text()
    wanted = {other: kept for other, kept in _profiles_in(old).items() if other != name}
    text = _without(old, name)
    if profile is not None:
        wanted[name] = profile
        fields = [f"{field} = {json.dumps(value, ensure_ascii=False)}" for field, value in profile.items()]
        text = "\n".join([*([text.rstrip("\n"), ""] if text.strip() else []), _header(name), *fields]) + "\n"
    if not _has_profiles(text, wanted):
        raise Usage(f"the profile {name} in {file} is written in a form that login cannot change: edit it by hand")
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_name(f"{file.name}.{os.getpid()}")
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as handle:
        handle.write(text)
    new.replace(file)  # in one step, so that no crash leaves half of it
    return file


def _has_profiles(text: str, wanted: Mapping[str, Any]) -> bool:
    try:
        return bool(tomllib.loads(text).get("profiles", {}) == wanted)
    except tomllib.TOMLDecodeError:
        return False


def _header(name: str) -> str:
    is_bare = name.isascii() and name.replace("-", "").replace("_", "").isalnum()
    return f"[profiles.{name if is_bare else json.dumps(name, ensure_ascii=False)}]"


def _without(text: str, name: str) -> str:
    """Return the text of a file without the table of a profile."""
    kept, is_inside = [], False
    for line in text.splitlines(keepends=True):
        if line.lstrip().startswith("["):
            is_inside = _table_of(line) == ["profiles", name]
        if not is_inside:
            kept.append(line)
    return f"{text.rstrip()}\n" if (text := "".join(kept)).strip() else ""


def _table_of(header: str) -> list[str]:
    """Return the path that the header of a table names."""
    try:
        tree: Any = tomllib.loads(header)
    except tomllib.TOMLDecodeError:
        return []  # a line of an array
    path = []
    while isinstance(tree, dict) and tree:
        ((name, tree),) = tree.items()
        path.append(name)
    return path
