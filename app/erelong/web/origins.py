"""Refuses requests that foreign web pages send through the browser of somebody who can reach the service."""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

from aiohttp import hdrs
from multidict import istr

from erelong.errors import Forbidden

if TYPE_CHECKING:
    from aiohttp import web

SITE: Final = istr("Sec-Fetch-Site")
OWN_SITES: Final = ("same-origin", "none")  # none: typed in, or a bookmark
HOST: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([\w.-]+))(?::[0-9]*)?", re.ASCII)
UNOWNED: Final = (".local", ".internal")  # nobody can register these


def refuse_foreign_page(request: web.Request) -> None:
    """Refuse a request from a page of another origin. Only browsers send the origin, and scripts cannot change it.

    `Sec-Fetch-Site` takes precedence, since it also holds behind a proxy that changes Host. Browsers send it only over
    https and on loopback.
    """
    headers = request.headers
    site = headers.get(SITE)
    origin = headers.get(hdrs.ORIGIN)
    if site is None and origin is None:
        return
    is_own = site in OWN_SITES if site else (origin or "").partition("://")[2] == headers.get(hdrs.HOST)
    if not is_own:
        source = f"{hdrs.ORIGIN}: {origin!r:.200}" if origin is not None else f"{SITE}: {site!r:.200}"
        raise Forbidden(
            f"cross-origin request refused ({source}); use /docs, type the address into the browser, or leave the "
            "header out if the client is not a browser"
        )


def refuse_ownable_host(request: web.Request, *, is_local: bool) -> None:
    """Refuse a Host that somebody can own. The owner of a name can point it here, and its pages then have the same
    origin (DNS rebinding). Every browser sends Host.
    """
    host = request.headers.get(hdrs.HOST)
    if host is not None and not _is_safe(host, is_local):
        allowed = "localhost and addresses" if is_local else "addresses, names without a dot, *.local and *.internal"
        raise Forbidden(
            f"refused Host: {host!r:.200}, which a web page may have made to point here; without an API key only "
            f"{allowed} are allowed; use the address, have the proxy send it as Host, or make an API key with new-key"
        )


@lru_cache(maxsize=256)
def _is_safe(host: str, is_local: bool) -> bool:
    """Return whether nobody can own a host. On loopback, the network may resolve even a name without a dot."""
    parts = HOST.fullmatch(host)
    if parts is None:
        return False
    name = (parts[1] or parts[2]).lower()
    try:
        return name == "localhost" or bool(ip_address(name))
    except ValueError:
        return not is_local and ("." not in name or name.endswith(UNOWNED))
