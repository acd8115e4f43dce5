"""A program that takes pictures of all screens of the dashboard: `make screens` writes them to build/screens."""

from __future__ import annotations

import asyncio
import base64
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.support.browser import Browser, find_browser
from tests.support.demo import Demo

FOLDER = Path("build/screens")
SHAPES = {"light": (1440, 900, "light"), "dark": (1440, 900, "dark"), "narrow": (360, 740, "light")}
SCREENS = {
    "overview": "#/",
    "queues": "#/queues",
    "queue": "#/queues/mail",
    "jobs": "#/jobs?state=scheduled",
    "job": "#/jobs?state=failed",
    "waiting-job": "#/jobs?key=order-7-reminder",
    "failed": "#/failed",
    "operations": "#/operations",
    "schedules": "#/schedules",
    "schedule": "#/schedules/daily-report",
    "new-schedule": "#/schedules/+",
    "kinds": "#/kinds",
    "submit": "#/submit?kind=http",
}
FIRST_ROW = "document.querySelector('.rows tbody th a')"


async def main(names: list[str]) -> None:
    program = find_browser()
    if program is None:
        sys.exit("no browser: install chromium")
    with tempfile.TemporaryDirectory() as folder:
        async with Demo() as demo, Browser(program=program, folder=Path(folder)) as browser:
            await browser.ask("Emulation.setTimezoneOverride", timezoneId="Europe/Berlin")
            for shape, (width, height, scheme) in SHAPES.items():
                await dress(browser, width, height, scheme)
                for screen, address in SCREENS.items():
                    if not names or f"{screen}-{shape}" in names or screen in names:
                        await take(browser, f"{demo.url}/{address}", FOLDER / f"{screen}-{shape}.png")
            for fault in browser.faults:
                sys.stderr.write(f"{fault}\n")


async def dress(browser: Browser, width: int, height: int, scheme: str) -> None:
    await browser.ask(
        "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500
    )
    await browser.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])


async def take(browser: Browser, url: str, path: Path) -> None:
    await browser.ask("Page.navigate", url="about:blank")
    await browser.ask("Page.navigate", url=url)
    await browser.until("document.querySelector('#main h1')")
    if "job-" in path.name:
        await asyncio.wait_for(browser.until(FIRST_ROW), 5)
        await browser.value(f"{FIRST_ROW}.click()")
        await asyncio.wait_for(browser.until("document.querySelector('.timeline li')"), 5)
    await asyncio.sleep(0.8)
    page: dict[str, Any] = await browser.ask("Page.captureScreenshot", format="png", captureBeyondViewport=False)
    save(path, base64.b64decode(page["data"]))


def save(path: Path, picture: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(picture)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
