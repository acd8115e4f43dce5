"""Why no answer came to a call, in words: those of the library name its classes, and repeat what came."""

from __future__ import annotations

import os
import ssl

from aiohttp import (
    ClientConnectorCertificateError,
    ClientConnectorDNSError,
    ClientConnectorError,
    ClientHttpProxyError,
    ClientPayloadError,
    ClientProxyConnectionError,
    ClientResponseError,
    ConnectionTimeoutError,
    ServerDisconnectedError,
)
from aiohttp.http import HttpProcessingError
from aiohttp.http_exceptions import BadStatusLine, LineTooLong


def reason_of(error: Exception) -> str:
    """One line that says what the receiver did, or what stood between; it repeats nothing that was sent."""
    match error:
        case ClientHttpProxyError():
            return f"the proxy answered {error.status} {error.message}"
        case ClientProxyConnectionError():  # its text says where the proxy is
            return "the proxy does not answer"
        case ConnectionTimeoutError():
            return str(error)
        case ClientConnectorCertificateError():
            return f"its certificate is not accepted: {_told(error.certificate_error)}"
        case ClientConnectorDNSError():
            return f"its name could not be looked up: {error.os_error.strerror or error.os_error}"
        case ClientConnectorError():
            return f"no connection: {_told(error.os_error)}"
        case ServerDisconnectedError():
            return "it closed the connection before it had answered"
        case ClientPayloadError():
            return "it closed the connection in the middle of its answer"
        case OSError():
            return f"the connection broke: {_told(error)}"
        case ClientResponseError() | HttpProcessingError():
            return _nonsense(error.__cause__)
        case _:
            return str(error) or type(error).__name__


def _told(error: BaseException) -> str:
    match error:
        case ssl.SSLCertVerificationError():
            return error.verify_message.rstrip(".")
        case ssl.SSLError() if error.reason:
            return f"TLS failed: {error.reason.replace('_', ' ').lower()}"
        case OSError(errno=int(number)):  # its own text names the address that was tried
            return os.strerror(number)
        case _:
            return str(error) or type(error).__name__


def _nonsense(cause: BaseException | None) -> str:
    match cause:
        case BadStatusLine():
            return "what it sent is not HTTP; are scheme and port of the URL the right ones?"
        case LineTooLong():
            return "a line of its headers is too long"
        case _:
            return "its headers, or the chunks of its body, are malformed or too many"
