"""One function runs unchanged in a service and in a worker."""

from __future__ import annotations

from pydantic import BaseModel

from erelong import AsyncClient, Attempt, Worker, kind
from erelong.settings.kinds import KindSettings
from tests.support.served import Serve


class Order(BaseModel):
    number: int
    paid: bool = False


@kind("ship")
async def ship(attempt: Attempt, order: Order) -> dict[str, object]:
    return {"number": order.number, "paid": order.paid, "attempt": attempt.number, "kind": attempt.kind}


@kind("add")
def add(a: int, b: int = 1) -> int:
    return a + b


async def results_of(client: AsyncClient) -> list[object]:
    shipped = await client.submit(ship.job(Order(number=7)))
    return [await shipped.result(), await (await client.submit(add.job(2))).result()]


async def test_service_and_worker_return_the_same(serve: Serve) -> None:
    inside = await serve(declared={made.name: KindSettings(python=f"{__name__}:{made.name}") for made in (ship, add)})
    outside = await serve()
    async with AsyncClient(f"http://127.0.0.1:{inside.port}") as client:
        from_service = await results_of(client)

    async with AsyncClient(f"http://127.0.0.1:{outside.port}") as client:
        worker = Worker(ship, add, once=True)
        await worker.register(client)
        jobs = [await client.submit(ship.job(Order(number=7))), await client.submit(add.job(2))]
        await worker.serve(client)
        from_worker = [await job.result() for job in jobs]

    assert from_service == from_worker == [{"number": 7, "paid": False, "attempt": 1, "kind": "ship"}, 3]
