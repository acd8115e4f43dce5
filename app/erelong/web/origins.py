"""Where a request was made: pages of elsewhere must not ask through the browser of somebody who reaches the service."""

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
UNOWNED: Final = (".local", ".internal")  # what nobody can register


def refuse_page(request: web.Request) -> None:
    """Only browsers say where a page is from, no script can change it, and what other clients send is let through.

    `Sec-Fetch-Site` goes first, since it holds behind a proxy that changes Host; browsers send it over https and on
    loopback only.
    """
    headers = request.headers
    site = headers.get(SITE)
    origin = headers.get(hdrs.ORIGIN)
    if site is None and origin is None:
        return
    is_own = site in OWN_SITES if site else (origin or "").partition("://")[2] == headers.get(hdrs.HOST)
    if not is_own:
        named = f"{hdrs.ORIGIN}: {origin!r:.200}" if origin is not None else f"{SITE}: {site!r:.200}"
        raise Forbidden(
            f"a page of elsewhere asks ({named}), and only pages of this service may; use /docs, type the "
            "address in, or leave the header out if this is no browser"
        )


def refuse_name(request: web.Request, *, is_local: bool) -> None:
    """Whoever owns a name can make it point here, and the page under it is then of the same origin: so where no key is
    asked for, the service answers to addresses and to names without an owner. Any browser sends Host.
    """
    host = request.headers.get(hdrs.HOST)
    if host is not None and not _is_safe(host, is_local):
        taken = "localhost and addresses" if is_local else "addresses, names without a dot, *.local and *.internal"
        raise Forbidden(
            f"without a key only {taken} are answered, not Host: {host!r:.200}, which may be a web page's name made to "
            "point here; ask by address, have the proxy in front send that as Host, or make a key with new-key"
        )


@lru_cache(maxsize=256)
def _is_safe(host: str, is_local: bool) -> bool:
    """On loopback a name without a dot is none: the network a laptop is in says what it means."""
    parts = HOST.fullmatch(host)
    if parts is None:
        return False
    name = (parts[1] or parts[2]).lower()
    try:
        return name == "localhost" or bool(ip_address(name))
    except ValueError:
        return not is_local and ("." not in name or name.endswith(UNOWNED))
