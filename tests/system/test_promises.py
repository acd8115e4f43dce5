"""The clients of the tests send different requests in every run."""

from __future__ import annotations

from typing import Any

from tests.system.promises import Promises


class SilentClient:
    """Records requests and answers that the backlog is full."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str]] = []

    async def ask(self, method: str, path: str, *_: Any, **__: Any) -> tuple[int, dict[str, Any]]:
        self.requests.append((method, path))
        return 507, {}


async def test_clients_of_different_seeds_send_different_requests() -> None:
    clients = [SilentClient() for _ in range(3)]
    for client, seed in zip(clients, (1, 2, 1), strict=True):
        await Promises(client, seed=seed).load(1, asks=30)  # type: ignore[arg-type]  # a partial client

    first, other, again = (client.requests for client in clients)
    assert first == again != other
