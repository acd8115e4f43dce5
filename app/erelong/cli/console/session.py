"""The client of a command: it can show its requests, only check or print a change, and ask before the first one."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NoReturn

from erelong.client.profile import find_profile
from erelong.client.requests import Repeat
from erelong.client.sync.client import Client
from erelong.client.sync.transport import Transport

if TYPE_CHECKING:
    import argparse

    from erelong.client.requests import Answer, Request


class Session(Client):
    """A client made of the options of a command."""

    def __init__(self, options: argparse.Namespace, *, retries: bool, has_screen: bool) -> None:
        """With a screen, nothing is written to standard error."""
        given = None if options.key_file is None else options.key_file.read_text(encoding="utf-8").strip()
        profile = find_profile(options.url, given, options.profile)
        kind = Transport
        if options.verbose:
            from erelong.cli.console.wire import TracedTransport

            kind = TracedTransport
        transport = kind(url=profile.url, headers=profile.headers())
        super().__init__(
            profile.url, key=profile.key or "", timeout=options.request_timeout, retries=retries, transport=transport
        )
        self._has_screen = has_screen
        self._has_key = profile.key is not None
        self.must_confirm = profile.confirm and not getattr(options, "yes", False)
        self._is_check = getattr(options, "check", False)
        self._is_curl = getattr(options, "curl", False)

    def warn(self, text: str) -> None:
        if not self._has_screen:
            print(f"erelong: {text}; Ctrl-C ends it", file=sys.stderr, flush=True)

    def ask(self, request: Request, *, timeout: float | None = None) -> Answer:
        if _is_change(request):
            if self._is_check:
                request = _as_dry_run(request)
            if self._is_curl:
                self.print_as_curl(request)
            if not self._is_check:
                self.confirm(f"{request.method} {request.path}")
        return super().ask(request, timeout=timeout)

    def confirm(self, what: str) -> None:
        """Ask once, before the first change, if the profile says `confirm = true`. Raise ValueError for a no."""
        if not self.must_confirm:
            return
        if not sys.stdin.isatty():
            raise ValueError("the profile says confirm = true, and there is no terminal to ask on: add --yes")
        print(f"{what} at {self.url}? [y/N] ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise ValueError("nothing was changed")
        self.must_confirm = False

    def print_as_curl(self, request: Request) -> NoReturn:
        """Print a request, and end the command without sending it."""
        from erelong.cli.console.wire import as_curl

        print(as_curl(request, self.url, has_key=self._has_key))
        raise SystemExit(0)


def _is_change(request: Request) -> bool:
    return request.repeat is not Repeat.READ and "dry_run=true" not in request.path


def _as_dry_run(request: Request) -> Request:
    return request._replace(path=f"{request.path}{'&' if '?' in request.path else '?'}dry_run=true")
