"""Why a call got no response, in words: aiohttp's own texts name its classes and repeat received data."""

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
    """Return one line about the failure that quotes nothing from the request."""
    match error:
        case ClientHttpProxyError():
            return f"the proxy answered {error.status} {error.message}"
        case ClientProxyConnectionError():  # its own text names the proxy's address
            return "the proxy does not answer"
        case ConnectionTimeoutError():
            return str(error)
        case ClientConnectorCertificateError():
            return f"its certificate is not accepted: {_text_of(error.certificate_error)}"
        case ClientConnectorDNSError():
            return f"its name could not be resolved: {error.os_error.strerror or error.os_error}"
        case ClientConnectorError():
            return f"no connection: {_text_of(error.os_error)}"
        case ServerDisconnectedError():
            return "it closed the connection before it answered"
        case ClientPayloadError():
            return "it closed the connection in the middle of its answer"
        case OSError():
            return f"the connection broke: {_text_of(error)}"
        case ClientResponseError() | HttpProcessingError():
            return _malformed(error.__cause__)
        case _:
            return str(error) or type(error).__name__


def _text_of(error: BaseException) -> str:
    match error:
        case ssl.SSLCertVerificationError():
            return error.verify_message.rstrip(".")
        case ssl.SSLError() if error.reason:
            return f"TLS failed: {error.reason.replace('_', ' ').lower()}"
        case OSError(errno=int(number)):  # its own text names the address
            return os.strerror(number)
        case _:
            return str(error) or type(error).__name__


def _malformed(cause: BaseException | None) -> str:
    match cause:
        case BadStatusLine():
            return "its response is not HTTP: check the scheme and port of the URL, and that no 204 or 304 has a body"
        case LineTooLong():
            return "one of its header lines is too long"
        case _:
            return "its headers, or the chunks of its body, are malformed or too many"
