"""Decides after each try of a request: another one after a pause, an error, or an answer. Without I/O and clock."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from json import JSONDecodeError, loads
from typing import Any, Final

from erelong.client.errors import NoAnswer, Unsupported, refused, refused_by
from erelong.client.requests import Answer, Cut, Repeat, Request
from erelong.version import VERSION

FIRST_PAUSE: Final = 0.1
MAX_PAUSE: Final = 5.0
PASSING: Final = frozenset({408, 429, 502, 503, 504, 507})
UNBEGUN_CODES: Final = frozenset({"draining", "overloaded", "too_many_connections", "rate_limited"})
"""Codes of problems that are found before a request begins."""
GATEWAY: Final = frozenset({502, 504})
STORE_FAILED: Final = "store_unavailable"
"""The code of a problem after which a write may still take effect."""


class Tries:
    """The tries of one request under one deadline."""

    def __init__(self, request: Request, *, now: float, timeout: float, is_retrying: bool) -> None:
        self._request = request
        self._deadline = now + timeout + request.wait
        self._timeout = timeout
        self._is_retrying = is_retrying
        self._failed = 0
        self._maybe_done = False

    def left(self, now: float) -> float:
        """Return the seconds that the next try may take."""
        return max(self._deadline - now, 0.001)

    def after_cut(self, cut: Cut, now: float) -> float:
        """Return the pause before the next try; raise NoAnswer if there is none."""
        changes = self._request.repeat is not Repeat.READ
        self._maybe_done |= cut.is_sent and changes
        may_repeat = self._request.repeat is not Repeat.UNBEGUN or not cut.is_sent
        pause = self._pause()
        if self._is_retrying and may_repeat and not cut.is_lasting and now + pause < self._deadline:
            return pause
        what = f"no answer to {self._request.method} {self._request.path.partition('?')[0]}: {cut}"
        if self._maybe_done:
            what += "; the change may have been made: check before you repeat it"
        elif not cut.is_sent:
            what += "; check that the service runs and that the URL is right"
        raise NoAnswer(what, maybe_done=self._maybe_done) from cut

    def after_answer(self, answer: Answer, now: float) -> float | None:
        """Return the pause before the next try, or None: this answer is the last."""
        self._maybe_done |= self._request.repeat is not Repeat.READ and _is_doubtful(answer)
        if answer.status not in PASSING and (answer.status != 500 or self._request.repeat is not Repeat.READ):
            return None
        if not self._is_retrying or (self._request.repeat is Repeat.UNBEGUN and not _is_unbegun(answer)):
            return None
        pause = self._pause()
        pause = max(retry_after(answer) or 0.0, pause) if "retry-after" in answer.headers else pause
        return pause if now + pause < self._deadline else None

    def checked(self, answer: Answer) -> Answer:
        """Return the last answer, or raise its error."""
        is_gone = answer.status == 404 and self._maybe_done and self._request.maybe_gone  # an earlier try deleted it
        if answer.status < 400 or is_gone:
            return Answer(204, answer.headers, b"") if is_gone else answer
        problem = refused(answer.status, answer.body, retry_after(answer))
        if isinstance(problem, Unsupported):
            what = f"this service has no {self._request.method} {self._request.path.partition('?')[0]}"
            remedy = f"it is older than this client ({VERSION}), or the URL leads to something else"
            problem = refused_by(problem.status, {**problem.problem, "detail": f"{what}: {remedy}"})
        problem.maybe_done = self._maybe_done
        raise problem

    def _pause(self) -> float:
        """Return an exponential delay with full jitter, so that clients do not return together."""
        self._failed += 1
        return random.uniform(0.0, min(FIRST_PAUSE * 2.0 ** (self._failed - 1), MAX_PAUSE))


def read_json(answer: Answer) -> Any:
    """Return the JSON of an answer; None if it has no body."""
    if not answer.body:
        return None
    try:
        return loads(answer.body)
    except JSONDecodeError:
        start = answer.body[:80].decode(errors="replace")
        raise NoAnswer(
            f"what answered {answer.status} is not erelong: {start!r}; check the URL", maybe_done=False
        ) from None


def _is_doubtful(answer: Answer) -> bool:
    """Return whether a change may have been made in spite of this refusal: the gateway, or the service, cannot know."""
    if answer.status in GATEWAY:
        return True
    return answer.status == 503 and refused(answer.status, answer.body).code == STORE_FAILED


def _is_unbegun(answer: Answer) -> bool:
    """Return whether the answer proves that nothing was begun."""
    return refused(answer.status, answer.body).code in UNBEGUN_CODES


def retry_after(answer: Answer) -> float | None:
    """Return the seconds of `Retry-After`, which a proxy may give as a date."""
    text = answer.headers.get("retry-after")
    if text is None:
        return None
    try:
        return max(float(text), 0.0)
    except ValueError:
        pass
    try:
        return max((parsedate_to_datetime(text) - datetime.now(UTC)).total_seconds(), 0.0)
    except (ValueError, TypeError):
        return None
