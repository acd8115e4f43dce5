"""The page at /docs, which shows and tries the API, and the security policy that confines it to this service."""

from __future__ import annotations

import base64
import re
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Final

PAGE: Final = Path(__file__).with_name("docs_page.html")
CONTENT_TYPE: Final = "text/html; charset=utf-8"


@cache
def read_page() -> tuple[bytes, dict[str, str]]:
    """Return the page and its headers. Only its own script and style run, and it may call only this service."""
    page = PAGE.read_bytes()
    policy = {
        "default-src": "'none'",
        "script-src": _hash_of(page, b"script"),
        "style-src": _hash_of(page, b"style"),
        "img-src": "data:",
        "connect-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    headers = {
        "Content-Type": CONTENT_TYPE,
        "Content-Security-Policy": "; ".join(f"{name} {sources}" for name, sources in policy.items()),
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-cache",
    }
    return page, headers


def _hash_of(page: bytes, tag: bytes) -> str:
    (text,) = re.findall(rb"<%b>(.*?)</%b>" % (tag, tag), page, re.DOTALL)
    return f"'sha256-{base64.b64encode(sha256(text).digest()).decode()}'"
