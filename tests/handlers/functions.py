"""Functions such as users declare as kinds."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, Never

from pydantic import BaseModel, ConfigDict, Field

from erelong import Attempt, GiveUp, RetryAfter

release = threading.Event()
"""The event that `block` waits for."""


class Order(BaseModel):
    number: int
    lines: list[int] = []


@dataclass
class Receipt:
    order: int
    printed_at: datetime
    total: Decimal = Decimal("9.90")
    notes: list[str] = field(default_factory=list)


class Measured(BaseModel):
    model_config = ConfigDict(ser_json_inf_nan="constants")

    value: float


def add(a: int, b: int = 2) -> int:
    return a + b


async def add_async(a: int, b: int = 2) -> int:
    await asyncio.sleep(1)
    return a + b


def postpone(at: datetime, by: timedelta = timedelta(hours=1)) -> datetime:
    return at + by


def ship(order: Order) -> Receipt:
    assert isinstance(order, Order)
    return Receipt(order=order.number, printed_at=datetime.fromisoformat("2026-12-01T09:00:00+00:00"))


def ship_tried(attempt: Attempt, /, order: Order, *, again: Attempt | None = None) -> dict[str, Any]:
    assert attempt is again
    return {"order": order.number, "attempt": attempt.number}


def untyped(a, b=None):  # type: ignore[no-untyped-def]
    return [a, b]


def any_names(first: int, attempt: Attempt, **rest: Any) -> dict[str, Any]:
    return {"first": first, "number": attempt.number, **rest}


def odd_names(json: int, copy: str, model_config: bool, _private: int = 0, /, *, self: int = 1) -> list[Any]:
    return [json, copy, model_config, _private, self]


def many(a: int, b: int | list[int], c: Order, d: Annotated[int, Field(le=3)] = 3, e: object = sys) -> None:
    """Takes params with many possible faults."""


def nothing(x: int) -> None:
    """Returns nothing."""


def nan() -> list[float]:
    return [float("nan"), float("inf")]


def nan_by_choice() -> Measured:
    return Measured(value=float("nan"))


def nan_as_text() -> str:
    return "NaN and Infinity"


def unserialisable() -> Any:
    return threading.Lock()


def forgotten_await() -> Any:
    return add_async(1)


def thread_name() -> str:
    return threading.current_thread().name


def thread_id() -> int:
    return threading.get_ident()


def block() -> str:
    assert release.wait(10)
    return "late"


def give_up() -> None:
    raise GiveUp("no such order")


def fail() -> None:
    raise LookupError("no such order")


async def fail_async() -> None:
    raise LookupError("no such order")


def leave() -> Never:
    sys.exit(3)


async def leave_async() -> Never:
    sys.exit(3)


def stop_iteration() -> None:
    next(iter(()))


def cancelled() -> None:
    raise asyncio.CancelledError


async def cancelled_async() -> None:
    raise asyncio.CancelledError


class Printer:
    @staticmethod
    def draw(page: int) -> int:
        return page

    async def __call__(self, page: int) -> int:
        return page


printer = Printer()
number = 7


def takes_lock(lock: threading.Lock) -> None:
    """Cannot have a schema."""


def returns_lock() -> threading.Lock:
    return threading.Lock()


def takes_stars(*numbers: int) -> int:
    return sum(numbers)


def takes_unknown(x: Unknown) -> None:  # type: ignore[name-defined]  # noqa: F821
    """Its annotation does not exist."""


def takes_field(x: int = Field(3, ge=1)) -> int:
    return x


def generator() -> Iterator[int]:
    yield 1


async def retry_after(delay: Any) -> None:
    raise RetryAfter(delay)


def retry_after_in_thread(delay: Any) -> None:
    raise RetryAfter(delay, "come again")
