"""The parts start in order and stop in reverse, also after a failed start."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from erelong.errors import Draining, Exit, StoreCorrupt, StoreFailed, StoreUnavailable
from erelong.model.job import State
from erelong.settings.queues import QueueSettings, Retention
from erelong.settings.section import ConfigError
from erelong.settings.sections import AuthSection, Config, ServerSection
from erelong.web.listener import is_loopback, listen, refuse_open_listener
from erelong.web.process import end_strays, stop_requested
from tests.support import SOURCE
from tests.support.builders import make_running, put
from tests.support.engine import Engine
from tests.support.faults import FaultyStore
from tests.support.kinds import FakeRunner, lasting
from tests.support.virtual import VirtualClock


def engine_that_notes(clock: VirtualClock) -> Engine:
    """Return an engine whose store also records the calls of the handlers."""
    store = FaultyStore()
    return Engine(clock=clock, store=store, handler=FakeRunner(life=store.calls))


async def test_parts_start_in_order_and_stop_in_reverse(clock: VirtualClock) -> None:
    engine = engine_that_notes(clock)

    async with engine:
        started = [*engine.store.calls]
        await asyncio.sleep(1)
        engine.store.calls.clear()

    assert started == ["open", "open kind", "list", "overrides", "list", "due"]
    assert engine.store.calls == ["close kind", "close"]


async def test_no_task_runs_after_the_stop(clock: VirtualClock) -> None:
    async with Engine(clock=clock) as engine:
        await engine.submit(delay=3_600)

    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_second_stop_does_nothing(clock: VirtualClock) -> None:
    engine = engine_that_notes(clock)
    async with engine:
        pass

    await engine.node.stop()

    assert engine.store.calls.count("close") == 1


async def test_outcomes_are_on_the_disk_before_the_store_is_closed(clock: VirtualClock) -> None:
    engine = Engine(clock=clock, handler=FakeRunner(lasting(5)))
    async with engine:
        job = await engine.submit()
        await engine.until(lambda: engine.handler.running == 1)

    assert engine.store.calls[-2:] == ["finish", "close"]
    assert (await engine.read(job)).state is State.SUCCEEDED


async def test_stored_jobs_can_be_read_between_the_drain_and_the_close(clock: VirtualClock) -> None:
    engine = engine_that_notes(clock)
    async with engine:
        job = await engine.until_final(await engine.submit())
        await engine.node.engine.stop()

        assert "close" not in engine.store.calls
        assert await engine.node.services.jobs.get(job.id) == job


@pytest.mark.parametrize(
    ("broken", "closed"), [("open", []), ("overrides", ["close kind", "close"]), ("list", ["close kind", "close"])]
)
async def test_failed_start_closes_the_opened_parts(clock: VirtualClock, broken: str, closed: list[str]) -> None:
    engine = engine_that_notes(clock)
    engine.store.broken[broken] = StoreFailed("the disk does not answer")

    with pytest.raises(StoreFailed, match="does not answer"):
        await engine.node.start()

    assert [call for call in engine.store.calls if call.startswith("close")] == closed
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_stop_without_a_start_does_nothing(clock: VirtualClock) -> None:
    engine = engine_that_notes(clock)

    await engine.node.stop()

    assert engine.store.calls == []


async def test_service_starts_on_a_full_disk_and_runs_when_there_is_room(clock: VirtualClock) -> None:
    engine = Engine(clock=clock)
    (lost,) = await put(engine.store, make_running(now=clock.now()))
    engine.store.fill_disk()

    async with engine:
        await asyncio.sleep(10)
        assert (await engine.node.services.jobs.get(lost.id)).state is State.RUNNING
        engine.store.broken.clear()
        job = await engine.until_final(lost, within=5)

    assert (job.state, job.attempt) == (State.SUCCEEDED, 2)


async def test_drain_refuses_new_work_and_ends_waits(clock: VirtualClock) -> None:
    async with Engine(clock=clock) as engine:
        job = await engine.submit(delay=3_600)
        waiting = asyncio.create_task(engine.until_final(job))
        await asyncio.sleep(1)

        engine.node.engine.drain()

        assert await asyncio.wait_for(waiting, 1) == job
        with pytest.raises(Draining):
            await engine.submit()
        assert engine.node.health.checks()["service"] == "draining"


async def test_checks_report_a_failing_store(clock: VirtualClock) -> None:
    async with Engine(clock=clock) as engine:
        engine.store.ails = "damaged: a page; restore it"

        assert engine.node.health.checks()["store"] == "damaged: a page; restore it"


async def test_start_on_an_unreadable_store_names_the_remedy(clock: VirtualClock) -> None:
    engine = Engine(clock=clock)
    engine.store.broken["list"] = StoreUnavailable("damaged", exit=StoreCorrupt("put a copy back"))

    with pytest.raises(StoreCorrupt, match="put a copy back"):
        await engine.node.start()


async def test_stop_without_a_store_waits_for_nothing(clock: VirtualClock) -> None:
    engine = Engine(clock=clock, handler=FakeRunner(lasting(100)))
    async with engine:
        await engine.submit()
        await engine.until(lambda: engine.handler.running == 1)
        engine.store.broken |= dict.fromkeys(("finish", "save", "get", "list"), StoreUnavailable("gone"))
        began_at = clock.now()

        await engine.node.engine.stop(can_store=False)

        assert clock.now() - began_at < 1_000_000


async def test_end_of_the_store_stops_the_service(clock: VirtualClock) -> None:
    store, stopping = FaultyStore(), asyncio.Event()
    stop = asyncio.ensure_future(stop_requested(stopping, store))
    await asyncio.sleep(1)
    assert not stop.done()

    store.exit.set_result(StoreFailed("twice in a minute"))

    reason = await stop
    assert reason is not None
    assert reason.code == 74


async def test_signal_stops_the_service_without_a_reason(clock: VirtualClock) -> None:
    stopping = asyncio.Event()
    stop = asyncio.ensure_future(stop_requested(stopping, FaultyStore()))

    stopping.set()

    assert await stop is None


async def test_retention_runs_by_itself(clock: VirtualClock) -> None:
    queue = QueueSettings(retention=Retention(succeeded=600.0))
    async with Engine(clock=clock, queue=queue) as engine:
        job = await engine.until_final(await engine.submit())
        await asyncio.sleep(598)
        assert await engine.store.get([job.seq]) == {job.seq: job}
        await asyncio.sleep(63)

        assert await engine.store.get([job.seq]) == {}


async def test_background_duty_survives_a_store_that_fails(clock: VirtualClock) -> None:
    async with Engine(clock=clock) as engine:
        engine.store.broken["get"] = StoreUnavailable("not now")
        await engine.submit()
        await asyncio.sleep(5)
        engine.store.broken.clear()

        assert engine.node.health.checks()["scheduler"] == "ok"
        await engine.until(lambda: len(engine.handler.attempts) == 1, within=2)


def test_embedded_store_loads_nothing_of_several_nodes(tmp_path: Path) -> None:
    script = (
        "import asyncio, pathlib, sys\n"
        "from erelong.handlers.registry import make_kinds\n"
        "from erelong.node import Node\n"
        "from erelong.settings.sections import Config, StoreSection\n"
        "from erelong.stores.registry import make_store\n"
        "async def run(path):\n"
        "    config = Config(store=StoreSection(path=path))\n"
        "    node = Node(config=config, store=make_store(config), kinds=make_kinds(config))\n"
        "    await node.start()\n"
        "    await node.stop()\n"
        f"asyncio.run(run(pathlib.Path({str(tmp_path / 'jobs.db')!r})))\n"
        "of_nodes = ('psycopg', 'erelong.cluster', 'erelong.stores.postgres', 'erelong.stores.copying')\n"
        "sys.exit(str([name for name in sys.modules if name.startswith(of_nodes)]))"
    )

    done = subprocess.run([sys.executable, "-c", script], cwd=SOURCE, capture_output=True, text=True, timeout=30)

    assert done.stderr.strip() == "[]"


# the end


async def test_strays_are_ended(clock: VirtualClock) -> None:
    stray = asyncio.create_task(asyncio.sleep(3_600))
    began_at = clock.now()

    assert await end_strays(1.0) == 0
    assert stray.cancelled()
    assert clock.now() == began_at


async def test_stray_that_ignores_its_cancellation_is_not_waited_for(clock: VirtualClock) -> None:
    handler = FakeRunner()
    stray = asyncio.create_task(handler.swallow())
    await asyncio.sleep(0)
    began_at = clock.now()

    assert await end_strays(1.0) == 1
    assert clock.now() - began_at == 1_000_000
    handler.let_go.set()
    await stray


async def test_loop_without_strays_ends() -> None:
    assert await end_strays(1.0) == 0


# the listener


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_loopback_listener_needs_no_keys(host: str) -> None:
    assert is_loopback(host)
    refuse_open_listener(Config(server=ServerSection(host=host)))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.com", "localhost.example", "127.example"])
def test_open_listener_needs_keys_or_allow_anonymous(host: str) -> None:
    with pytest.raises(ConfigError, match="allow_anonymous"):
        refuse_open_listener(Config(server=ServerSection(host=host)))

    refuse_open_listener(Config(server=ServerSection(host=host), auth=AuthSection(allow_anonymous=True)))


def test_listener_takes_any_free_port() -> None:
    with listen("127.0.0.1", 0) as listener:
        assert listener.getsockname()[1] > 0


def test_used_port_is_reported() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]

        with pytest.raises(
            Exit, match=f"cannot listen on 127.0.0.1 port {port}: .*draining, or choose another port with --port"
        ):
            listen("127.0.0.1", port)


def test_unavailable_address_is_reported() -> None:
    with pytest.raises(Exit, match=r"cannot listen on 203\.0\.113\.7 port 0: [^;]*; choose another port with --port"):
        listen("203.0.113.7", 0)
