"""Where the service is and with which key: arguments, then the environment, then a profile, then loopback."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from erelong.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

DEFAULT_URL: Final = "http://127.0.0.1:8080"
KEY_COMMAND_TIMEOUT: Final = 30.0


class Profile(NamedTuple):
    """An address, an API key, and whether commands ask before they change anything."""

    url: str
    key: str | None
    confirm: bool = False

    def __repr__(self) -> str:
        return f"Profile(url={self.url!r}, key={'…' if self.key else None!r})"

    def headers(self) -> dict[str, str]:
        agent = {"User-Agent": f"erelong-python/{VERSION}", "Accept": "application/json"}
        return agent | ({"Authorization": f"Bearer {self.key}"} if self.key else {})


def find_profile(
    url: str | None = None, key: str | None = None, name: str | None = None, environment: Mapping[str, str] = os.environ
) -> Profile:
    """Return the profile in force. Raise ValueError if a named profile or a file does not exist.

    An address and a key belong together: a stored key is only sent to the address that stands beside it. `name` goes
    before the environment, which goes before the profile of ERELONG_PROFILE or the one named `default`.
    """
    stored = _stored(name or environment.get("ERELONG_PROFILE"), environment)
    known_url = (None if name else environment.get("ERELONG_URL")) or stored.get("url")
    found = (url or known_url or DEFAULT_URL).rstrip("/")
    if not found.startswith(("http://", "https://")):
        raise ValueError(f"{found!r} is not the URL of a service: write http://host:port or https://host")
    if key is None:
        key = _stored_key(found, stored, environment, is_named=name is not None)
    return Profile(url=found, key=key, confirm=stored.get("confirm", False) is True)


def _stored_key(url: str, stored: Mapping[str, Any], environment: Mapping[str, str], *, is_named: bool) -> str | None:
    """Return the key of the environment or of a profile, unless it belongs to another address."""
    finders: list[Callable[[], str | None]] = []
    if url == (environment.get("ERELONG_URL") or stored.get("url") or url).rstrip("/"):
        finders.append(lambda: _key_of_environment(environment))
    if url == stored.get("url", DEFAULT_URL).rstrip("/"):
        finders.append(lambda: _key_of_profile(stored))
    keys = (find() for find in (reversed(finders) if is_named else finders))
    return next((key for key in keys if key is not None), None)


def profile_file(environment: Mapping[str, str] = os.environ) -> Path:
    base = environment.get("XDG_CONFIG_HOME") or Path(environment.get("HOME", "~")).expanduser() / ".config"
    return Path(base) / "erelong" / "cli.toml"


def _stored(name: str | None, environment: Mapping[str, str]) -> Mapping[str, Any]:
    file = profile_file(environment)
    if not file.is_file():
        if name:
            raise ValueError(f"no profile {name!r}: {file} does not exist; make it with: erelong login")
        return {}
    import tomllib  # only where there is a file: commands start in milliseconds

    profiles = tomllib.loads(file.read_text(encoding="utf-8")).get("profiles", {})
    if name and name not in profiles:
        raise ValueError(f"no profile {name!r} in {file}; known: {', '.join(profiles) or 'none'}")
    stored: Mapping[str, Any] = profiles.get(name or "default", {})
    return stored


def _key_of_environment(environment: Mapping[str, str]) -> str | None:
    if environment.get("ERELONG_KEY"):
        return environment["ERELONG_KEY"].strip()
    return _read(Path(environment["ERELONG_KEY_FILE"])) if environment.get("ERELONG_KEY_FILE") else None


def _key_of_profile(stored: Mapping[str, Any]) -> str | None:
    if "key" in stored:
        return str(stored["key"])
    if "key_file" in stored:
        return _read(Path(stored["key_file"]).expanduser())
    if "key_command" in stored:
        import subprocess

        command = stored["key_command"]
        try:
            ended = subprocess.run(command, capture_output=True, text=True, timeout=KEY_COMMAND_TIMEOUT, check=False)
        except subprocess.TimeoutExpired:
            raise ValueError(f"key_command {command} has not ended within {KEY_COMMAND_TIMEOUT:g} s") from None
        if ended.returncode:
            raise ValueError(f"key_command {command} ended with {ended.returncode}: {ended.stderr.strip()}")
        return ended.stdout.strip()
    return None


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ValueError(f"the key file {file} cannot be read: {error.strerror}") from None
