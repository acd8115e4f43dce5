"""On the virtual loop waiting is free, I/O and threads are real, and a wait that cannot end is an error."""

import asyncio
import time

import pytest
from aiohttp import ClientSession, ClientTimeout, web
from aiohttp.test_utils import TestServer

from tests.support.virtual import EPOCH, Stuck, VirtualClock, VirtualLoop

DAY = 86_400.0


async def test_seven_days_pass_in_no_time(clock: VirtualClock) -> None:
    began_at = time.monotonic()

    for _ in range(7 * 24 * 60):
        await asyncio.sleep(60)

    assert clock.now() == EPOCH + 7 * 86_400_000_000
    assert time.monotonic() - began_at < 1.0


async def test_timers_fire_in_the_order_of_their_times() -> None:
    fired: list[float] = []
    loop = asyncio.get_running_loop()

    for delay in (3 * DAY, 0.002, 40.0, 0.001):
        loop.call_later(delay, fired.append, delay)
    await asyncio.sleep(4 * DAY)

    assert fired == [0.001, 0.002, 40.0, 3 * DAY]


@pytest.mark.parametrize("start", [0.0, 1.0, 7 * DAY, 7 * DAY + 0.000_003, 3_650 * DAY])
async def test_timer_a_microsecond_away_is_neither_early_nor_late(clock: VirtualClock, start: float) -> None:
    loop = asyncio.get_running_loop()
    await asyncio.sleep(start)

    for due_at in range(clock.now() + 1, clock.now() + 500):
        reached = loop.create_future()
        loop.call_at((due_at - EPOCH) / 1e6, reached.set_result, None)
        await asyncio.sleep(0)  # the loop checks its timers once without a jump, which must not fire this one
        await reached

        assert clock.now() == due_at


async def test_timeout_ends_a_slow_task() -> None:
    loop = asyncio.get_running_loop()

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(30):
            await asyncio.sleep(3_600)

    assert loop.time() == pytest.approx(30)


async def test_time_does_not_pass_while_tasks_can_run() -> None:
    loop = asyncio.get_running_loop()
    loop.call_later(1e-6, pytest.fail, "a timer fired while tasks were ready")

    for _ in range(1_000):
        await asyncio.sleep(0)

    assert loop.time() == 0


async def test_step_moves_the_wall_clock_only(clock: VirtualClock) -> None:
    loop = asyncio.get_running_loop()
    await asyncio.sleep(10)

    clock.step(-3_600)
    stepped_back = clock.now()
    clock.step(7_200.5)

    assert stepped_back == EPOCH - 3_590_000_000
    assert clock.now() == EPOCH + 3_610_500_000
    assert loop.time() == 10


def test_wait_that_cannot_end_is_stuck() -> None:
    async def wait_for_nothing() -> None:
        await asyncio.Event().wait()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner, pytest.raises(Stuck, match=r"test_virtual\.py:\d+"):
        runner.run(wait_for_nothing())


def test_open_sockets_do_not_hide_a_stuck_loop() -> None:
    async def serve_nobody() -> None:
        async with TestServer(web.Application()) as server:
            _, writer = await asyncio.open_connection(server.host, server.port)
            try:
                await asyncio.Event().wait()
            finally:
                writer.close()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner, pytest.raises(Stuck):
        runner.run(serve_nobody())


async def test_http_between_client_and_server_takes_no_virtual_time() -> None:
    loop = asyncio.get_running_loop()

    async with TestServer(_echo_app()) as server, ClientSession() as client:
        for size in (0, 1, 1_000_000):
            async with client.post(server.make_url("/echo"), data=b"x" * size) as response:
                assert len(await response.read()) == size

    assert loop.time() == 0


async def test_slow_server_meets_the_client_timeout_in_virtual_time() -> None:
    loop = asyncio.get_running_loop()

    async with TestServer(_echo_app()) as server, ClientSession(timeout=ClientTimeout(total=20)) as client:
        async with client.post(server.make_url("/echo?sleep=19")) as response:
            assert response.status == 200
        with pytest.raises(TimeoutError):
            await client.post(server.make_url("/echo?sleep=21"))

    # aiohttp rounds timers of more than 5 s up to the whole second
    assert 39 <= loop.time() <= 40


async def test_time_does_not_pass_until_a_thread_returns() -> None:
    loop = asyncio.get_running_loop()

    async with asyncio.timeout(1):
        thread_ran = await asyncio.to_thread(sum, range(1_000_000))

    assert thread_ran == 499_999_500_000
    assert loop.time() == 0


@pytest.mark.real_loop
async def test_marked_test_runs_on_a_real_loop() -> None:
    loop = asyncio.get_running_loop()

    assert type(loop).__module__.startswith("asyncio.")
    assert loop.time() == pytest.approx(time.monotonic(), abs=1)


@pytest.mark.real_loop("asyncio", "uvloop")
async def test_marked_test_runs_on_each_loop_it_names(request: pytest.FixtureRequest) -> None:
    loop = asyncio.get_running_loop()

    assert type(loop).__module__.split(".")[0] in request.node.name


def _echo_app() -> web.Application:
    async def echo(request: web.Request) -> web.Response:
        await asyncio.sleep(float(request.query.get("sleep", "0")))
        return web.Response(body=await request.read())

    app = web.Application(client_max_size=2**21)
    app.router.add_post("/echo", echo)
    return app
