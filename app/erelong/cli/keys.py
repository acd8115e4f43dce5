"""The command that makes API keys."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from erelong.settings.api_keys import fingerprint_of, new_key

if TYPE_CHECKING:
    import argparse


def make_key(asked: argparse.Namespace) -> int:
    key = new_key()
    fingerprint = fingerprint_of(key)
    name = asked.name or f"key-{fingerprint.partition(':')[0]}"
    lines = [f"sha256 = {json.dumps(fingerprint)}", f"scopes = {json.dumps(asked.scopes)}"]
    if asked.queues:
        lines.append(f"queues = {json.dumps(asked.queues)}")
    if asked.rate:
        lines.append(f"rate = {{ per_second = {asked.rate:g} }}")
    print(f'The key. It is shown this once; clients send it as "Authorization: Bearer <key>":\n\n{key}\n')
    print("The lines for config.toml, which do not betray it:\n")
    print(f"[auth.keys.{json.dumps(name) if '.' in name else name}]", *lines, sep="\n")
    print(f"\nOr in the environment:\n\nERELONG_AUTH__KEYS__{_variable(name)}='{{ {', '.join(lines)} }}'")
    return 0


def _variable(name: str) -> str:
    """The name of a key as a part of one of the environment: there two underscores part, and _FILE is not the key."""
    word = "_".join(re.findall("[A-Z0-9]+", name.upper())) or "KEY"
    return f"{word}_KEY" if word.endswith("_FILE") else word
