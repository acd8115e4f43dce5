"""Sends requests on aiohttp."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from erelong.client.errors import refused
from erelong.client.requests import Answer, Cut, tls_cut
from erelong.client.retries import retry_after

try:
    import aiohttp
    from yarl import URL
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"{error.name} is not installed; AsyncClient and Worker need it, run: pip install 'erelong[async]'",
        name=error.name,
    ) from None

if TYPE_CHECKING:
    from erelong.client.requests import Request


class Transport:
    """One session; it is opened by the first request, in the loop of that request."""

    def __init__(self, *, url: str, headers: Mapping[str, str], max_connections: int = 100) -> None:
        self._url = url
        self._headers = headers
        self._max_connections = max_connections
        self._session: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False

    async def send(self, request: Request, timeout: float) -> Answer:
        """Return the whole answer; raise Cut if it does not arrive in time."""
        try:
            async with asyncio.timeout(timeout), self._request(request) as response:
                return await _answer(response)
        except TimeoutError:
            raise Cut(f"nothing within {timeout:.3g} s", is_sent=True) from None
        except aiohttp.ClientConnectorCertificateError as error:
            raise Cut(str(error), is_sent=False, is_lasting=True) from error
        except aiohttp.ClientConnectorSSLError as error:
            raise tls_cut(self._url, error.os_error) from error
        except aiohttp.ClientConnectorError as error:
            raise Cut(f"no connection to {self._url}: {error.strerror or error}", is_sent=False) from error
        except (aiohttp.ClientError, OSError) as error:
            raise Cut(f"the connection broke: {_cause_of(error)}", is_sent=True) from error

    @asynccontextmanager
    async def stream(self, request: Request, silence: float) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open an endless answer and give its lines; raise Cut if none arrives within `silence` seconds."""
        try:
            async with asyncio.timeout(silence):
                response = await self._request(request)
            async with response:
                if response.status >= 300:
                    async with asyncio.timeout(silence):
                        answer = await _answer(response)
                    raise refused(answer.status, answer.body, retry_after(answer))
                yield self._lines(response, silence)
        except aiohttp.ClientConnectorCertificateError as error:
            raise Cut(str(error), is_sent=False, is_lasting=True) from error
        except aiohttp.ClientConnectorSSLError as error:
            raise tls_cut(self._url, error.os_error) from error
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise Cut(f"the stream broke: {_cause_of(error)}", is_sent=True) from error

    async def _lines(self, response: aiohttp.ClientResponse, silence: float) -> AsyncIterator[bytes]:
        while True:
            async with asyncio.timeout(silence):
                line = await response.content.readline()
            if not line:
                return
            yield line

    def _request(self, request: Request) -> aiohttp.client._RequestContextManager:
        if self._is_closed:
            raise RuntimeError("the client is closed: make another one")
        loop = asyncio.get_running_loop()
        if self._session is None:
            self._loop = loop
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=self._max_connections),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(),
            )
            self._session._retry_connection = False  # it would repeat requests without telling
        if self._loop is not loop:
            raise RuntimeError("the client belongs to another event loop: make one inside each asyncio.run(…)")
        return self._session.request(
            request.method,
            URL(self._url + request.path, encoded=True),
            data=request.body,
            headers={**self._headers, **request.headers},
            allow_redirects=False,
        )

    def tick(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        self._is_closed = True
        if self._session is not None:
            await self._session.close()


async def _answer(response: aiohttp.ClientResponse) -> Answer:
    headers = {name.lower(): value for name, value in response.headers.items()}
    return Answer(response.status, headers, await response.read())


def _cause_of(error: Exception) -> str:
    """Return why a connection broke. These errors of aiohttp have texts about its own objects."""
    if isinstance(error, (aiohttp.ServerDisconnectedError, aiohttp.ClientPayloadError)):
        return "the other side closed it"
    return str(error) or type(error).__name__
