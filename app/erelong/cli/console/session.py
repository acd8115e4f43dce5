"""The client of a command: it can show its requests, only check or print a change, and ask before the first one."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final, NoReturn

from erelong.client.profile import find_profile
from erelong.client.requests import Cut, Repeat
from erelong.client.sync.client import Client
from erelong.client.sync.transport import Transport

if TYPE_CHECKING:
    import argparse

    from erelong.client.requests import Answer, Request

SILENCE: Final = 1.0  # seconds of pauses after which a command says that it keeps trying


class PatientTransport(Transport):
    """A transport that says once that it keeps trying to connect, so that the command does not seem to hang."""

    _cut: Cut | None = None  # of the last try, if it did not connect
    _paused = 0.0
    _has_told = False

    def send(self, request: Request, timeout: float) -> Answer:
        try:
            answer = super().send(request, timeout)
        except Cut as cut:
            self._cut = None if cut.is_sent else cut
            raise
        self._cut, self._paused = None, 0.0
        return answer

    def sleep(self, seconds: float) -> None:
        self._paused += seconds
        if self._cut is not None and self._paused > SILENCE and not self._has_told:
            self._has_told = True
            print(f"erelong: {self._cut}: retrying; Ctrl-C ends it", file=sys.stderr, flush=True)
        super().sleep(seconds)


class Session(Client):
    """A client made of the options of a command."""

    def __init__(self, options: argparse.Namespace, *, retries: bool, has_screen: bool) -> None:
        """With a screen, nothing is written to standard error."""
        given = None if options.key_file is None else options.key_file.read_text(encoding="utf-8").strip()
        profile = find_profile(options.url, given, options.profile)
        kind = Transport if has_screen else PatientTransport
        if options.verbose:
            from erelong.cli.console.wire import TracedTransport

            kind = TracedTransport
        transport = kind(url=profile.url, headers=profile.headers())
        super().__init__(
            profile.url, key=profile.key or "", timeout=options.request_timeout, retries=retries, transport=transport
        )
        self._has_key = profile.key is not None
        self.must_confirm = profile.confirm and not getattr(options, "yes", False)
        self._is_check = getattr(options, "check", False)
        self._is_curl = getattr(options, "curl", False)

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
