"""Resolves the local times of submits and changes by the rules in use."""

from __future__ import annotations

import math
from datetime import datetime
from typing import TYPE_CHECKING

from erelong.clock.instants import DEEPEST_PAST, SECOND, format_instant
from erelong.errors import Fault, Invalid
from erelong.model.faults import shown
from erelong.model.times.local_time import instant_of

if TYPE_CHECKING:
    from erelong.clock.instants import Instant
    from erelong.clock.zones import ZoneSource
    from erelong.model.extras import Extras

_NO_ZONE = 'is required with local_time: send an IANA name, such as "Europe/Berlin"'
_NO_LOCAL_TIME = "applies only to local_time: remove it, or send local_time in place of execute_at or delay"


class LocalTimes:
    """Turns a local time and its zone into an instant."""

    def __init__(self, *, zones: ZoneSource, max_horizon: float) -> None:
        self._zones = zones
        self._max_horizon = max_horizon

    def resolve(self, extras: Extras, now: Instant, what: str) -> Instant:
        """Return the instant of the local time in these extras; raise `Invalid` with the bad field.

        In a gap the offset before it applies; in a fold the first of both instants is taken.
        """
        local_time, zone = extras.get("local_time"), extras.get("zone")
        if local_time is None or zone is None:
            raise Invalid(what, faults=[Fault("/zone", _NO_ZONE if zone is None else _NO_LOCAL_TIME)])
        try:
            found = self._zones.current.find(zone)
        except ValueError as error:
            raise Invalid(what, faults=[Fault("/zone", str(error))]) from None
        instant = instant_of(datetime.fromisoformat(local_time), found)
        if reason := self._beyond(instant, now):
            raise Invalid(what, faults=[Fault("/local_time", f"{shown(local_time)} in {zone} is {reason}")])
        return instant

    def _beyond(self, instant: Instant, now: Instant) -> str | None:
        """Return what to send in place of an instant that is too far away."""
        earliest, latest = now - DEEPEST_PAST, now + math.ceil(self._max_horizon * SECOND)
        if instant < earliest:
            return f"more than 10 years ago: send a time after {format_instant(earliest)}"
        if instant > latest:
            return f"too far ahead: send a time before {format_instant(latest)}"
        return None
