"""Serves the dashboard from memory: one page, and its script and style sheet under a digest of all three."""

from __future__ import annotations

import base64
import gzip
import re
from functools import cache
from hashlib import blake2b, sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from aiohttp import hdrs, web

from erelong.dashboard.sources import join_modules, strip_style
from erelong.errors import NoSuchRoute
from erelong.web.face import Face, Route
from erelong.web.response import Reply
from erelong.web.router import names_in

if TYPE_CHECKING:
    from collections.abc import Mapping

    from erelong.web.face import Gate, Renderer

STATIC: Final = Path(__file__).with_name("static")
PAGE: Final = "index.html"
STYLE: Final = "ui.css"
SCRIPT: Final = "ui.js"  # all modules
MAIN: Final = "main.js"  # the module that imports the others
TYPES: Final = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
PLACE: Final = b"{ui}"  # stands in the page for the folder of the files
OWN: Final = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class File(NamedTuple):
    """A file as it is sent, plain and compressed."""

    plain: bytes
    packed: bytes
    headers: Mapping[str, str]

    def reply(self, request: web.Request) -> Reply:
        headers = {**self.headers}
        if "gzip" not in request.headers.get(hdrs.ACCEPT_ENCODING, ""):
            return Reply(body=self.plain, headers=headers)
        headers["Content-Encoding"] = "gzip"
        return Reply(body=self.packed, headers=headers)


class Files(NamedTuple):
    """The page, its entity tag, and the other files by name."""

    digest: str
    page: File
    others: Mapping[str, File]


def make_face(*, gate: Gate, renderer: Renderer) -> Face:
    """Return the routes of the dashboard. The page holds no data, so they need no key."""
    files = read_files()

    async def page(request: web.Request) -> Reply:
        if request.headers.get(hdrs.IF_NONE_MATCH) == files.page.headers[hdrs.ETAG]:
            return Reply(status=304, headers={hdrs.ETAG: files.page.headers[hdrs.ETAG], "Vary": "Accept-Encoding"})
        return files.page.reply(request)

    async def file(request: web.Request) -> Reply:
        names = names_in(request)
        found = files.others.get(names["file"])
        if found is None or names["digest"] != files.digest:
            raise NoSuchRoute(f"no file {request.path}; reload the dashboard, which an upgrade may have replaced")
        return found.reply(request)

    routes = [Route("GET", "/", None, page), Route("GET", "/ui/{digest}/{file}", None, file)]
    return Face(prefix="/ui", routes=routes, gate=gate, renderer=renderer)


@cache
def read_files() -> Files:
    """Read the sources, build the page, script and style sheet, and compress them."""
    sources = {path.name: path.read_text(encoding="utf-8") for path in STATIC.iterdir() if path.suffix in TYPES}
    texts = {
        PAGE: sources[PAGE].encode(),
        STYLE: strip_style(sources[STYLE]).encode(),
        SCRIPT: join_modules(sources, MAIN).encode(),
    }
    digest = blake2b(b"\0".join(texts.values()), digest_size=8).hexdigest()
    page = texts.pop(PAGE).replace(PLACE, f"ui/{digest}".encode())
    return Files(
        digest=digest,
        page=_file(PAGE, page, {"Cache-Control": "no-cache", hdrs.ETAG: f'"{digest}"', **_policy(page)}),
        others={
            name: _file(name, text, {"Cache-Control": "public, max-age=31536000, immutable"})
            for name, text in texts.items()
        },
    )


def _file(name: str, text: bytes, headers: dict[str, str]) -> File:
    content_type = f"{TYPES[Path(name).suffix]}; charset=utf-8"
    all_headers = {"Content-Type": content_type, "Vary": "Accept-Encoding", **OWN, **headers}
    return File(text, gzip.compress(text, 9, mtime=0), all_headers)


def _policy(page: bytes) -> dict[str, str]:
    """Return the headers that confine the page to its own files and this service. Its one inline script adds a slash
    to the address, without which a browser looks for the files in a wrong place.
    """
    (script,) = re.findall(rb"<script>(.*?)</script>", page, re.DOTALL)
    digest = base64.b64encode(sha256(script).digest()).decode()
    policy = {
        "default-src": "'none'",
        "script-src": f"'self' 'sha256-{digest}'",
        "style-src": "'self'",
        "connect-src": "'self'",
        "img-src": "'self' data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }
    return {
        "Content-Security-Policy": "; ".join(f"{name} {sources}" for name, sources in policy.items()),
        "Cross-Origin-Opener-Policy": "same-origin",
    }
