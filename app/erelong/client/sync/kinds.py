"""A kind of the service: its state, and the declaration of a pull kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from erelong.client.calls import kinds as calls
from erelong.client.records import KindRecord

if TYPE_CHECKING:
    from collections.abc import Mapping

    from erelong.client.drafts import RetryPolicy
    from erelong.client.kinds import Kind
    from erelong.client.sync.client import Client
    from erelong.client.times import Duration


class ServiceKind:
    """One kind, by its name or by its function."""

    def __init__(self, client: Client, kind: Kind[..., Any, Any] | str) -> None:
        self._client = client
        self._kind = kind
        self.name = kind if isinstance(kind, str) else kind.name

    def get(self) -> KindRecord:
        """Return its state now: schemas, an example, jobs and workers."""
        return KindRecord(self._client.send(calls.read(self.name)))

    def put(
        self,
        *,
        params_schema: Mapping[str, Any] | None = None,
        timeout: Duration | None = None,
        retry: RetryPolicy | None = None,
    ) -> KindRecord:
        """Declare it as a pull kind, or replace its declaration as a whole.

        The schema, the timeout and the retry policy of a function are the defaults. Raise Conflict if the kind is built
        in, or declared in the settings of the service.
        """
        body: dict[str, Any] = {}
        if not isinstance(self._kind, str):
            from erelong.client.schemas import declaration  # commands, which name their kinds, start without it

            body = declaration(self._kind)
        given = {"params_schema": params_schema, "timeout": timeout, "retry": retry}
        body |= {name: value for name, value in given.items() if value is not None}
        return KindRecord(self._client.send(calls.put(self.name, body)))

    def delete(self) -> None:
        """Forget a declared kind. Its jobs stay, and wait until it is declared again."""
        self._client.send(calls.delete(self.name))
