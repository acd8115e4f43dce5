"""The scheduler's timer: sleeps until an instant of the wall clock, a wake-up, or a step of that clock."""

from __future__ import annotations

import asyncio
import ctypes
import enum
import errno
import math
import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal, NoReturn, Protocol

from erelong.clock import instants
from erelong.clock.instants import SECOND, Instant, Now

if TYPE_CHECKING:
    from erelong.clock.remote import RemoteClock

JUMP: Final = 1.0  # seconds that wall and monotonic clock may drift apart between two checks; more is a step
_FAR: Final = 86_400 * SECOND  # stands in for no instant, since only an armed timerfd reports steps


class Wake(enum.Enum):
    DUE = enum.auto()
    SET = enum.auto()
    STEPPED = enum.auto()


class Alarm(Protocol):
    """A call that will be made, unless it is cancelled."""

    def cancel(self) -> None: ...


class AlarmClock(Protocol):
    """A monotonic clock with alarms."""

    def tick(self) -> float: ...

    def call_later(self, seconds: float, wake: Callable[[], None]) -> Alarm: ...


class Timer:
    """Wakes one sleeper at its instant, or earlier if the timer is set or the wall clock is stepped.

    `kind` is "timerfd" (Linux), "timer" (any loop), or None to choose. A simulated clock needs "timer", which checks
    for a step every `max_sleep` seconds (inf: never), or a `clock` whose alarms follow it. `now` may be that of a
    `remote` clock. `jump` is the last step in signed seconds.
    """

    def __init__(
        self,
        *,
        now: Now,
        kind: Literal["timerfd", "timer"] | None = None,
        max_sleep: float = 0.8,
        clock: AlarmClock | None = None,
        remote: RemoteClock | None = None,
    ) -> None:
        self.jump = 0.0
        self._now = now
        self._remote = remote
        self._kind = kind
        self._max_sleep = max_sleep
        self._clock = clock
        self._sleep: asyncio.Future[None] | None = None
        self._backend: _Backend | None = None
        self._monotonic = time.monotonic
        self._offset = 0.0
        self._is_set = self._is_stepped = self._is_closed = False

    def set(self) -> None:
        """Wake the sleeper; without one, the next wait returns at once. Call it from the loop's thread."""
        self._is_set = True
        self.stir()

    async def wait(self, until: Instant | None) -> Wake:
        """Sleep until the instant (None: no limit), a `set`, or a clock step; return which of them ended the sleep."""
        if self._sleep is not None:
            raise RuntimeError("this timer already has a sleeper: give each sleeper its own timer")
        backend = self._backend or self._open()
        while True:
            now = self._now()
            self._check_for_step(now)
            if self._is_closed:
                raise RuntimeError("the timer is closed: nothing would wake the sleeper")
            if self._is_stepped:
                self._is_stepped = False
                return Wake.STEPPED
            if self._is_set:
                self._is_set = False
                return Wake.SET
            if until is not None and now >= until:
                return Wake.DUE
            self._sleep = asyncio.get_running_loop().create_future()
            try:
                backend.arm(now, until)
                await self._sleep
            finally:
                self._sleep = None

    def take_jump(self) -> float:
        """Return by how many seconds the clock has been stepped since the last call or wait; 0 if it has not been."""
        if self._backend is not None:
            self._check_for_step(self._now())
        is_stepped, self._is_stepped = self._is_stepped, False
        return self.jump if is_stepped else 0.0

    def close(self) -> None:
        """Close the backend; a task that still sleeps gets a RuntimeError."""
        self._is_closed = True
        if self._backend is not None:
            self._backend.close()
        self.stir()

    def stir(self) -> None:
        if self._sleep is not None and not self._sleep.done():
            self._sleep.set_result(None)

    def stepped(self) -> None:
        self._is_stepped = True
        self.stir()

    def _check_for_step(self, now: Instant) -> None:
        offset = now / SECOND - self._monotonic()
        if self._is_stepped or abs(offset - self._offset) > JUMP:
            self._is_stepped = True
            self.jump = offset - self._offset
        self._offset = offset

    def _open(self) -> _Backend:
        loop = asyncio.get_running_loop()
        if self._clock is not None:
            self._monotonic = self._clock.tick
        elif not self._is_real:
            self._monotonic = loop.time  # a simulated wall clock follows the loop's clock; uvloop's lags when busy
        self._offset = self._now() / SECOND - self._monotonic()
        self._backend = self._make_backend(loop)
        return self._backend

    def _make_backend(self, loop: asyncio.AbstractEventLoop) -> _Backend:
        if self._clock is not None:
            return _AlarmTimer(clock=self._clock, timer=self)
        return self._timerfd(loop) or _LoopTimer(loop=loop, timer=self, max_sleep=self._max_sleep)

    @property
    def _is_real(self) -> bool:
        return self._now is instants.now or self._remote is not None

    def _timerfd(self, loop: asyncio.AbstractEventLoop) -> _Timerfd | None:
        is_wanted = self._kind == "timerfd" or (self._kind is None and self._is_real)
        if not is_wanted:
            return None
        try:
            return _Timerfd(loop=loop, timer=self, remote=self._remote)
        except (OSError, NotImplementedError):  # not Linux, or a sandbox or loop without timerfd
            if self._kind == "timerfd":
                raise
            return None


class _Backend(Protocol):
    def arm(self, now: Instant, until: Instant | None) -> None: ...
    def close(self) -> None: ...


class _LoopTimer:
    """A timer of the loop: short sleeps, with a check of the wall clock after each."""

    def __init__(self, *, loop: asyncio.AbstractEventLoop, timer: Timer, max_sleep: float) -> None:
        self._loop = loop
        self._timer = timer
        self._max_sleep = max_sleep
        self._handle: asyncio.TimerHandle | None = None

    def arm(self, now: Instant, until: Instant | None) -> None:
        self.close()
        # Rounded up to a millisecond: uvloop rounds to the nearest, fires early, and the remainder would spin.
        delay = self._max_sleep if until is None else min(self._max_sleep, -((now - until) // 1000) / 1000)
        if delay < math.inf:
            self._handle = self._loop.call_later(delay, self._timer.stir)

    def close(self) -> None:
        if self._handle is not None:
            self._handle.cancel()


class _AlarmTimer:
    """A timer on the alarms of a clock, which ring early: the sleeper checks the time and sleeps again."""

    def __init__(self, *, clock: AlarmClock, timer: Timer) -> None:
        self._clock = clock
        self._timer = timer
        self._alarm: Alarm | None = None

    def arm(self, now: Instant, until: Instant | None) -> None:
        self.close()
        if until is not None:
            self._alarm = self._clock.call_later((until - now) / SECOND, self._timer.stir)

    def close(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()


class _Timerfd:
    """The kernel's timer on the wall clock, or on the base of a remote one. It reports steps of the wall clock.

    It is accurate to microseconds.
    """

    def __init__(self, *, loop: asyncio.AbstractEventLoop, timer: Timer, remote: RemoteClock | None) -> None:
        self._loop = loop
        self._timer = timer
        self._remote = remote
        self._armed: Instant | None = None
        self._fd = _create(None if remote is None else remote.base)
        try:
            loop.add_reader(self._fd, self._read)
        except NotImplementedError:
            os.close(self._fd)
            raise

    def arm(self, now: Instant, until: Instant | None) -> None:
        at = now + _FAR if until is None else until
        if self._remote is not None:
            at = min(at, now + SECOND)  # its steps are not reported
        if at == self._armed or (until is None and self._armed is not None and self._armed > now):
            return
        self._armed = at
        try:
            if self._remote is None:
                _set(self._fd, at, is_wall=True)
            else:  # a step since `now` was read may have put it before the start of the base
                _set(self._fd, max(1, at - self._remote.offset), is_wall=False)
        except OSError as error:
            self._handle_cancel(error)

    def close(self) -> None:
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _read(self) -> None:
        try:
            os.read(self._fd, 8)
        except BlockingIOError:  # the timer was set again after the fd became readable
            return
        except OSError as error:
            self._handle_cancel(error)
        self._armed = None
        self._timer.stir()

    def _handle_cancel(self, error: OSError) -> None:
        if error.errno != errno.ECANCELED:
            raise error
        self._armed = None
        self._timer.stepped()


if sys.version_info >= (3, 13) and sys.platform == "linux":

    def _create(base: int | None) -> int:
        clock = time.CLOCK_REALTIME if base is None else base
        return os.timerfd_create(clock, flags=os.TFD_NONBLOCK | os.TFD_CLOEXEC)

    def _set(fd: int, at: int, *, is_wall: bool) -> None:
        """Arm the timer. ECANCELED reports a step that was not read yet; the timer is armed even then."""
        flags = os.TFD_TIMER_ABSTIME | (os.TFD_TIMER_CANCEL_ON_SET if is_wall else 0)
        os.timerfd_settime_ns(fd, flags=flags, initial=at * 1000)

elif sys.platform == "linux":
    _libc = ctypes.CDLL(None, use_errno=True)

    class _Itimerspec(ctypes.Structure):
        _fields_ = [(name, ctypes.c_long) for name in ("interval_s", "interval_ns", "value_s", "value_ns")]

    def _create(base: int | None) -> int:
        clock = time.CLOCK_REALTIME if base is None else base
        fd: int = _libc.timerfd_create(clock, os.O_NONBLOCK | os.O_CLOEXEC)
        return fd if fd >= 0 else _raise_errno()

    def _set(fd: int, at: int, *, is_wall: bool) -> None:
        """Arm the timer. ECANCELED reports a step that was not read yet; the timer is armed even then."""
        seconds, us = divmod(at, SECOND)
        spec = _Itimerspec(0, 0, seconds, us * 1000)
        abstime, cancel_on_set = 1, 2 if is_wall else 0
        if _libc.timerfd_settime(fd, abstime | cancel_on_set, ctypes.byref(spec), None) < 0:
            _raise_errno()

    def _raise_errno() -> NoReturn:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))

else:

    def _create(base: int | None) -> int:
        raise NotImplementedError("timerfd is a Linux call")

    def _set(fd: int, at: int, *, is_wall: bool) -> None:
        raise NotImplementedError("timerfd is a Linux call")
