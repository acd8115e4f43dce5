"""The clients of the trials do not ask the same in every trial."""

from __future__ import annotations

from typing import Any

from tests.system.promises import Promises


class SilentClient:
    """Notes what it is asked and answers that there is no room."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    async def ask(self, method: str, path: str, *_: Any, **__: Any) -> tuple[int, dict[str, Any]]:
        self.asked.append((method, path))
        return 507, {}


async def test_clients_of_different_seeds_ask_differently() -> None:
    clients = [SilentClient() for _ in range(3)]
    for client, seed in zip(clients, (1, 2, 1), strict=True):
        await Promises(client, seed=seed).load(1, asks=30)  # type: ignore[arg-type]  # as much of one as is used

    first, other, again = (client.asked for client in clients)
    assert first == again != other
