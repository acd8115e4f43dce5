"""A service in this process, on a virtual clock, with jobs of every sort: for pictures and tests of the dashboard."""

from __future__ import annotations

import asyncio
import math
from types import TracebackType
from typing import Any, Final, Self

import aiohttp
import orjson

from erelong.clock.instants import SECOND, Instant
from erelong.clock.virtual import VirtualClock
from erelong.handlers.registry import make_kinds
from erelong.monitoring.statistics.series import Point
from erelong.monitoring.statistics.totals import Totals
from erelong.node import Node
from erelong.settings.kinds import KindSettings
from erelong.settings.sections import AuthSection, Config, ServerSection
from erelong.stores.memory import MemoryStore
from erelong.telemetry.metrics import LATENESS_BOUNDS
from erelong.web.listener import listen
from erelong.web.server import Server
from tests.support.keyed import Keys

START: Final = 1_796_101_522 * SECOND  # 2026-12-01T05:05:22Z; pictures are taken six hours later
WORDS: Final = ["welcome", "invoice", "receipt", "reminder", "digest", "newsletter", "survey", "renewal"]
RESIZE: Final = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "description": "The image in the bucket."},
        "width": {"type": "integer", "minimum": 1, "maximum": 8000, "default": 800},
        "format": {"enum": ["jpeg", "webp", "avif"]},
    },
    "required": ["path"],
    "additionalProperties": False,
}
FAILURES: Final = [
    ("echo", "webhooks", "HTTP 503: upstream connect error after {} ms", 41),
    ("echo", "default", "exceeded {} s while rendering", 17),
    ("echo", "mail", "SMTP 451: mailbox of user {} is busy", 9),
    ("echo", "reports", "no such column: total_{}", 3),
]


class Demo:
    """The service; `url` is its address. It begins empty with `is_empty`. With `keys`, one named root does the rest."""

    def __init__(self, *, is_empty: bool = False, keys: Keys | None = None, port: int = 0, at: Instant = START) -> None:
        self._is_empty = is_empty
        self._port = port
        self._headers = {} if keys is None else {"Authorization": f"Bearer {keys.texts['root']}"}
        auth = AuthSection() if keys is None else keys.settings()
        kinds = {"resize": KindSettings(pull=True, params_schema=RESIZE, timeout=120.0)}
        config = Config(kinds=kinds, auth=auth, server=ServerSection(drain_timeout=0.1))
        self._clock = VirtualClock(at=at, tick=asyncio.get_running_loop().time)
        self.node = Node(
            config=config, store=MemoryStore(), kinds=make_kinds(config, is_virtual=True), virtual=self._clock
        )
        self._server = Server(timeouts=config.server, limits=config.limits, metrics=self.node.metrics)
        self.url = ""

    async def __aenter__(self) -> Self:
        await self.node.start()
        listener = listen("127.0.0.1", self._port)
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        await self._server.open(self.node.router, listener)
        self._session = aiohttp.ClientSession(headers=self._headers)
        if self._is_empty:
            await self.change("POST", "clock", {"advance": "6h"})
        else:
            await self._fill()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()
        await self.node.stop()
        await self._server.close()

    async def read(self, path: str) -> Any:
        async with self._session.get(f"{self.url}/v1/{path}") as answer:
            assert answer.status == 200, await answer.text()
            return orjson.loads(await answer.read())

    async def change(self, method: str, path: str, body: Any = None) -> Any:
        headers = {"Content-Type": "application/json"}
        async with self._session.request(
            method, f"{self.url}/v1/{path}", data=orjson.dumps(body or {}), headers=headers
        ) as answer:
            text = await answer.read()
            assert answer.status < 300, text
            return orjson.loads(text) if text else None

    async def _fill(self) -> None:
        await self.change("PUT", "queues/mail", {"rate": {"per_second": 50}, "concurrency": 10})
        await self.change("PUT", "queues/webhooks", {"label_concurrency": {"label": "tenant", "limit": 2}})
        await self._submit(self._failing())
        await self._submit([self._job(number, queue="default", delay=number % 21_000 + 60) for number in range(600)])
        await self._schedules()
        await self.change("POST", "clock", {"advance": "5h46m"})
        await self.change("POST", "queues/mail/pause", {"reason": "SMTP relay is down"})
        await self._submit([self._job(number, queue="mail", delay=number % 840) for number in range(1_204)])
        await self._submit([{"kind": "resize", "queue": "images", "params": {"path": f"in/{n}.png"}} for n in range(9)])
        await self.change("POST", "clock", {"advance": "14m"})
        await self._submit(self._waiting())
        await self._submit(
            [{"kind": "echo", "queue": "reports", "params": {"sleep": 900, "report": n}} for n in range(3)]
        )
        self._draw_history()

    async def _submit(self, jobs: list[dict[str, Any]]) -> None:
        for first in range(0, len(jobs), 5_000):
            await self.change("POST", "jobs/batch", {"jobs": jobs[first : first + 5_000]})

    def _job(self, number: int, **more: Any) -> dict[str, Any]:
        word = WORDS[number % len(WORDS)]
        params = {"template": word, "user": 4_000 + number * 7 % 900, "api_token": "s3cret"}
        return {"kind": "echo", "params": params, "labels": {"tenant": f"t{number % 5 + 1}"}, **more}

    def _failing(self) -> list[dict[str, Any]]:
        """Return jobs that fail over the next hours, more of them towards the end."""
        retry = {"max_attempts": 3, "delay": 20}
        return [
            {
                **self._job(number, queue=queue, delay=20_000 * math.sqrt((number + 1) / (jobs + 1)), retry=retry),
                "kind": kind,
                "params": {"fail": message.format(100 + number * 37), "order": 7_000 + number},
                "key": f"order-{7_000 + number}-{queue}",
            }
            for kind, queue, message, jobs in FAILURES
            for number in range(jobs)
        ]

    def _waiting(self) -> list[dict[str, Any]]:
        """Return waiting jobs whose due times come in waves, with a peak at 14:00."""
        jobs = []
        for number in range(9_000):
            hour = (number * 0.618034) % 1 * 24
            wave = 0.55 + 0.45 * math.sin(hour / 24 * 2 * math.pi - 0.9)
            if (number * 0.7548) % 1 < wave:
                jobs.append(self._job(number, queue=("default", "webhooks", "reports")[number % 3], delay=hour * 3_600))
        at_two = [self._job(number, queue="webhooks", execute_at="2026-12-01T14:00:00Z") for number in range(900)]
        soon = [self._job(number, queue="default", delay=number * 7.1 % 3_600) for number in range(700)]
        url = {"url": "https://app.example/remind", "json": {"order": 7}, "headers": {"Authorization": "Bearer s3cret"}}
        reminder = {"kind": "http", "params": url, "queue": "mail", "delay": "2h", "key": "order-7-reminder"}
        return [*jobs, *at_two, *soon, reminder]

    async def _schedules(self) -> None:
        job = {"kind": "echo", "params": {"report": "daily"}, "queue": "reports"}
        definitions = {
            "daily-report": {"cron": "0 9 * * MON-FRI", "zone": "Europe/Berlin", "job": job},
            "heartbeat": {"every": "10m", "job": {"kind": "echo", "queue": "default"}},
            "month-end": {"cron": "0 6 LW * *", "zone": "America/New_York", "job": job},
            "thumbnails": {
                "cron": "*/20 * * * *",
                "job": {"kind": "resize", "queue": "images", "params": {"path": "all"}},
            },
        }
        for name, definition in definitions.items():
            await self.change("PUT", f"schedules/{name}", definition)
        await self.change("POST", "schedules/month-end/pause", {"reason": "year-end freeze"})

    def _draw_history(self) -> None:
        """Give the last hour a history: the clock leapt over it."""
        series = self.node.statistics._sampling.fine
        now = self.node.engine.now()
        last = series.number_at(now)
        for step in range(360):
            wave = 42 + 14 * math.sin(step / 31) + 6 * math.sin(step / 5.3)
            failed = 3 * max(0.0, math.sin((step - 230) / 25)) if step > 230 else 0.02
            late = [0] * (len(LATENESS_BOUNDS) + 1)
            late[2 + (step % 7 == 0)] = 90
            late[6 + (step % 40 > 34) * 3] = 3
            totals = Totals(
                submitted=int(wave * 10),
                started=int(wave * 10),
                succeeded=int((wave - failed) * 10),
                failed=int(failed * 10),
                retried=int(failed * 14),
                late=tuple(late),
            )
            series.add(
                last - 360 + step,
                Point(totals, due=int(wave / 3) + (step > 270) * (step - 270) * 13, running=int(wave / 4)),
            )
        assert series.latest(360, last), now // SECOND
