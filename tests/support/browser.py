"""Headless Chromium, controlled over its debugging protocol."""

from __future__ import annotations

import asyncio
import itertools
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from copy import copy
from pathlib import Path
from typing import Any, Self

import aiohttp

EVIL = "evil.example"  # a public name that resolves to this machine
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
OPTIONS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-port=0",
    "--disable-quic", "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
PATIENCE = 30.0
SHOWN = 1_500  # characters
PAGE = """({address: location.href, focus: document.activeElement?.outerHTML.slice(0, 200) || '',
  dialog: document.querySelector('dialog[open]')?.innerText || '', text: document.body?.innerText || ''})"""


def find_browser() -> str | None:
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Browser:
    """One page, for which there are no hosts but this machine; `faults` has the errors, refused loads and uncaught
    exceptions in its console.
    """

    def __init__(self, *, program: str, folder: Path) -> None:
        self.faults: list[str] = []
        self._program = program
        self._folder = folder
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._session = ""

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            self._program,
            *OPTIONS,
            f"--user-data-dir={self._folder}",
            f"--host-resolver-rules=MAP {EVIL} 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
            "about:blank",
            stderr=asyncio.subprocess.PIPE,
        )
        self._http = aiohttp.ClientSession()
        self._line = await self._http.ws_connect(await self._address(), max_msg_size=0)
        self._listening = asyncio.create_task(self._listen())
        self._session = await self._open()
        await self._enable()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._line.close()
        await self._http.close()
        self._listening.cancel()
        self._process.kill()
        await self._process.wait()

    @asynccontextmanager
    async def tab(self) -> AsyncIterator[Browser]:
        """Open another tab beside this one."""
        tab = copy(self)
        tab._session = ""
        tab._session = await tab._open()
        await tab._enable()
        yield tab
        await tab.ask("Page.close")

    async def _open(self) -> str:
        target = await self.ask("Target.createTarget", url="about:blank")
        attached = await self.ask("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        session: str = attached["sessionId"]
        return session

    async def _enable(self) -> None:
        for domain in ("Runtime", "Log", "Page"):
            await self.ask(f"{domain}.enable")

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self._numbers)
        self._answers[number] = asyncio.get_running_loop().create_future()
        message = {"id": number, "method": method, "params": params}
        await self._line.send_json(message | ({"sessionId": self._session} if self._session else {}))
        return await self._answers[number]

    async def value(self, script: str) -> Any:
        """Return the value of an expression in the page; await a promise."""
        answer = await self.ask("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    async def until(self, script: str, *, within: float = PATIENCE) -> None:
        """Wait until an expression is true in the page; otherwise raise what it waited for and what the page shows."""
        last = ""
        try:
            async with asyncio.timeout(within):
                while not await self._is_true(script):  # noqa: ASYNC110 - another process
                    await asyncio.sleep(0.02)
        except TimeoutError:
            last = await self._shown()
        assert not last, f"{within:g} s passed without {script}\n{last}"

    async def _is_true(self, script: str) -> bool:
        return bool(await self.value(f"!!({script})"))

    async def _shown(self) -> str:
        """Return what a person sees, shortened, and the faults so far."""
        try:
            async with asyncio.timeout(5):
                page = await self.value(PAGE)
        except TimeoutError:
            return f"the page does not respond; faults: {self.faults}"
        return "\n".join([*(f"{name}: {text[:SHOWN]}" for name, text in page.items()), f"faults: {self.faults}"])

    async def _address(self) -> str:
        assert self._process.stderr is not None
        async for line in self._process.stderr:
            if found := re.search(rb"listening on (ws://\S+)", line):
                return found[1].decode()
        raise RuntimeError(f"{self._program} ended before it listened")

    async def _listen(self) -> None:
        async for message in self._line:
            event = message.json()
            if "id" in event:
                if not (answer := self._answers.pop(event["id"])).cancelled():
                    answer.set_result(event.get("result", event))
            elif event["method"] == "Runtime.exceptionThrown":
                self.faults.append(str(event["params"]))
            elif event["method"] == "Log.entryAdded" and event["params"]["entry"]["level"] in ("warning", "error"):
                self.faults.append(str(event["params"]["entry"]))
