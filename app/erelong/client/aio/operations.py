"""Operations: the same change to all jobs that match a filter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from erelong.client.calls import operations as calls
from erelong.client.calls.jobs import WAIT
from erelong.client.records import OperationRecord
from erelong.client.times import seconds_of, shown

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from erelong.client.aio.client import AsyncClient
    from erelong.client.drafts import Changes, Selection
    from erelong.client.times import Duration


class AsyncOperation(OperationRecord):
    """An operation as it was when the service answered, and the client to ask again."""

    __slots__ = ("_client",)

    def __init__(self, raw: Mapping[str, Any], client: AsyncClient) -> None:
        super().__init__(raw)
        self._client = client

    async def wait(self, timeout: Duration | None = None) -> AsyncOperation:
        """Return the operation when it is over; raise TimeoutError if it is not after `timeout`."""
        operation = self
        deadline = None if timeout is None else self._client.tick() + seconds_of(timeout)
        while not operation.is_over:
            left = WAIT if deadline is None else deadline - self._client.tick()
            request = calls.read(self.id, wait=max(min(left, WAIT), 0.0))
            operation = AsyncOperation(await self._client.send(request), self._client)
            if left <= 0 and not operation.is_over:
                raise TimeoutError(f"operation {self.id} is still {operation.state} after {shown(timeout)}")
        return operation

    async def get(self) -> AsyncOperation:
        """Return it as it is now."""
        return AsyncOperation(await self._client.send(calls.read(self.id)), self._client)

    async def cancel(self) -> AsyncOperation:
        """Stop it. What is done stays done."""
        return AsyncOperation(await self._client.send(calls.cancel(self.id)), self._client)


class AsyncOperations:
    """The operations of a service, as `client.operations`.

    Each takes filters, and `at_most`: if more jobs match, none is touched. `at_most=None` means any number.
    """

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def cancel(
        self, *, at_most: int | None, reason: str | None = None, rate: float | None = None, **which: Unpack[Selection]
    ) -> AsyncOperation:
        return await self._start("cancel", which, at_most, reason=reason, rate=rate)

    async def run(
        self,
        *,
        at_most: int | None,
        rate: float | None = None,
        spread: Duration | None = None,
        **which: Unpack[Selection],
    ) -> AsyncOperation:
        """Make waiting jobs due now, or spread over a time."""
        return await self._start("run", which, at_most, rate=rate, spread=spread)

    async def retry(
        self,
        *,
        at_most: int | None,
        rate: float | None = None,
        spread: Duration | None = None,
        **which: Unpack[Selection],
    ) -> AsyncOperation:
        return await self._start("retry", which, at_most, rate=rate, spread=spread)

    async def delete(
        self, *, at_most: int | None, rate: float | None = None, **which: Unpack[Selection]
    ) -> AsyncOperation:
        return await self._start("delete", which, at_most, rate=rate)

    async def edit(
        self, changes: Changes, *, at_most: int | None, rate: float | None = None, **which: Unpack[Selection]
    ) -> AsyncOperation:
        """Change waiting jobs; everything but their params."""
        return await self._start("patch", which, at_most, set=changes, rate=rate)

    async def shift(
        self, by: str, *, at_most: int | None, rate: float | None = None, **which: Unpack[Selection]
    ) -> AsyncOperation:
        """Move the due times of waiting jobs: `"2h"` later, `"-30m"` earlier."""
        return await self._start("patch", which, at_most, shift=by, rate=rate)

    async def count(
        self, action: str, *, changes: Changes | None = None, by: str | None = None, **which: Unpack[Selection]
    ) -> Mapping[str, Any]:
        """Return how many jobs an action would touch, by state, queue and kind, without touching any.

        The action is cancel, run, retry, delete or patch; patch takes the `changes` of `edit` or the `by` of `shift`.
        """
        request = calls.start(action, which, None, {"set": changes, "shift": by}, is_dry=True)
        counted: Mapping[str, Any] = await self._client.send(request)
        return counted

    async def get(self, id: str) -> AsyncOperation:
        return AsyncOperation(await self._client.send(calls.read(id)), self._client)

    async def list(self, **filters: Any) -> AsyncIterator[AsyncOperation]:
        """Yield the operations, latest first."""
        cursor = None
        while True:
            page = await self._client.send(calls.page(filters, cursor))
            for raw in page["operations"]:
                yield AsyncOperation(raw, self._client)
            cursor = page.get("next")
            if cursor is None:
                return

    async def _start(self, action: str, which: Mapping[str, Any], at_most: int | None, **more: Any) -> AsyncOperation:
        request = calls.start(action, which, at_most, more)
        return AsyncOperation(await self._client.send(request), self._client)
