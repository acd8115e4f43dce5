"""The command that makes API keys."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from erelong.settings.api_keys import fingerprint_of, new_key

if TYPE_CHECKING:
    import argparse


def make_key(options: argparse.Namespace) -> int:
    key = new_key()
    fingerprint = fingerprint_of(key)
    name = options.name or f"key-{fingerprint.partition(':')[0]}"
    lines = [f"sha256 = {json.dumps(fingerprint)}", f"scopes = {json.dumps(options.scopes)}"]
    if options.queues:
        lines.append(f"queues = {json.dumps(options.queues)}")
    if options.rate:
        lines.append(f"rate = {{ per_second = {options.rate:g} }}")
    print(f'The key. It is shown only once. Clients send it as "Authorization: Bearer <key>":\n\n{key}\n')
    print("The lines for config.toml, which do not reveal it:\n")
    print(f"[auth.keys.{json.dumps(name) if '.' in name else name}]", *lines, sep="\n")
    print(f"\nOr in the environment:\n\nERELONG_AUTH__KEYS__{_variable(name)}='{{ {', '.join(lines)} }}'")
    return 0


def _variable(name: str) -> str:
    """Return the name of a key for an environment variable, where `__` separates parts and `_FILE` has a meaning."""
    word = "_".join(re.findall("[A-Z0-9]+", name.upper())) or "KEY"
    return f"{word}_KEY" if word.endswith("_FILE") else word
