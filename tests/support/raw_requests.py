"""A corpus of malformed requests to send and to mutate."""

from __future__ import annotations

import gzip
import random
import zlib
from typing import NamedTuple

import orjson

HOST = b"Host: localhost\r\n"
JOB = b'{"kind":"echo"}'
CHUNKED = b"Transfer-Encoding: chunked\r\n"
LENGTH = b"Content-Length: 15\r\n"
UPGRADE = b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
BOMB = gzip.compress(b" " * 20_000_000)


class RawAnswer(NamedTuple):
    """One response as received."""

    status: int
    headers: dict[str, str]
    body: bytes


def get(path: bytes = b"/livez", *headers: bytes, method: bytes = b"GET", version: bytes = b"HTTP/1.1") -> bytes:
    return b"%s %s %s\r\n%s%s\r\n" % (method, path, version, HOST, b"".join(headers))


def post(*headers: bytes, body: bytes = JOB) -> bytes:
    head = b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return head + b"".join(headers) + b"\r\n" + body


def packed(encoding: bytes, body: bytes, method: bytes = b"POST") -> bytes:
    headers = b"Content-Encoding: %s\r\nContent-Length: %d\r\n" % (encoding, len(body))
    return method + b" /v1/jobs HTTP/1.1\r\nHost: localhost\r\n" + headers + b"\r\n" + body


CORPUS = {
    # not HTTP requests
    "nothing": b"",
    "empty lines": b"\r\n\r\n\n\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"x" * 50,
    "noise": bytes(range(256)) * 40,
    "HTTP/0.9": b"GET /livez\r\n\r\n",
    "HTTP/1.0": b"GET /livez HTTP/1.0\r\n\r\n",
    "HTTP/1.9": get(version=b"HTTP/1.9"),
    "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/2 in the words of HTTP/1": get(version=b"HTTP/2.0"),
    "HTTP/2 in the words of HTTP/1, to nowhere": get(b"/nowhere", version=b"HTTP/2.0"),
    "HTTP/3": get(version=b"HTTP/3.0"),
    "a word for a version": get(version=b"banana"),
    "line feeds only": b"GET /livez HTTP/1.1\nHost: a\n\n",
    "half a request line": b"GET /li",
    "half a header": b"GET /livez HTTP/1.1\r\nHo",
    # methods and targets
    "unknown method": get(method=b"BREW"),
    "small method": get(method=b"get"),
    "long method": get(method=b"F" * 9_000),
    "OPTIONS of all": get(b"*", method=b"OPTIONS"),
    "CONNECT": get(b"a:80", method=b"CONNECT") + b"hello",
    "CONNECT to a path": get(b"/v1/jobs", method=b"CONNECT"),
    "CONNECT to nowhere": b"CONNECT \r\nHost: localhost\r\n\r\n",
    "TRACE": get(method=b"TRACE"),
    "absolute form": get(b"http://a/livez"),
    "absolute form, broken address": get(b"http://[::/livez"),
    "absolute form, port too high": get(b"http://a:99999999/livez"),
    "absolute form, port no number": get(b"http://a:xx/livez"),
    "absolute form, no text": get(b"http://\xff\xfe/livez"),
    "authority alone": get(b"a:80"),
    "no target": b"GET  HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "question mark": get(b"?"),
    "NUL in the path": get(b"/liv\0ez"),
    "UTF-8 in the path": get("/é".encode()),
    "escaped NUL": get(b"/v1/jobs/%00"),
    "broken escapes": get(b"/%ff%00%zz"),
    "escaped slashes": get(b"/v1%2fjobs%2f..%2f..%2fetc"),
    "dots": get(b"/../../etc/passwd"),
    "slashes": get(b"///livez"),
    "brackets": get(b"/[]{}|^`"),
    "fragment": get(b"/livez#a"),
    "spaces": b"GET  /livez  HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "no text in the query": get(b"/v1/jobs?state=%ff&%00=1"),
    "half a surrogate in the query": get(b"/v1/jobs?queue=%ed%a0%80"),
    "very many parameters": get(b"/v1/jobs?" + b"&".join(b"a%d" % index for index in range(1_000))),
    "one parameter very often": get(b"/v1/jobs?" + b"state=failed&" * 600),
    "long target": get(b"/" + b"a" * 20_000),
    # headers
    "no host": b"GET /livez HTTP/1.1\r\n\r\n",
    "two hosts": get(b"/livez", HOST),
    "strange host": b"GET /livez HTTP/1.1\r\nHost: a b/%zz\r\n\r\n",
    "NUL in a header": get(b"/livez", b"X: a\0b\r\n"),
    "control characters in a header": get(b"/livez", b"X: \x01\x7f\r\n"),
    "carriage return in a header": get(b"/livez", b"X: a\rb\r\n"),
    "no text in a header": get(b"/livez", b"X: \xff\xfe\r\n"),
    "folded header": get(b"/livez", b"X: a\r\n b\r\n"),
    "header without a colon": get(b"/livez", b"X\r\n"),
    "space before the colon": get(b"/livez", b"X : a\r\n"),
    "header without a name": get(b"/livez", b": a\r\n"),
    "long header": get(b"/livez", b"X: " + b"a" * 20_000 + b"\r\n"),
    "long name of a header": get(b"/livez", b"X" * 20_000 + b": a\r\n"),
    "many headers": get(b"/livez", *(b"X%d: a\r\n" % index for index in range(1_000))),
    "headers without end": b"GET /livez HTTP/1.1\r\n" + b"X: a\r\n" * 100_000,
    "header without end": b"GET /livez HTTP/1.1\r\nX: " + b"a" * 1_000_000,
    "many cookies": get(b"/livez", b"Cookie: " + b"a=b;" * 1_500 + b"\r\n"),
    "strange range": get(b"/livez", b"Range: bytes=abc-\r\n"),
    "strange date": get(b"/livez", b"If-Modified-Since: nope\r\n"),
    "strange request id": get(b"/livez", b"X-Request-Id: \xff\r\n"),
    "strange forwarding": get(b"/livez", b"X-Forwarded-For: \"'\r\nForwarded: for=;;;\r\n"),
    "strange credentials": get(b"/v1/jobs", b"Authorization: Basic \xff\r\n"),
    "no text in If-Match": get(b"/v1/jobs/x", b"If-Match: \xff\r\n", method=b"DELETE"),
    "long wait": get(b"/v1/jobs/x", b"Prefer: wait=999999999999\r\n"),
    "no text in Idempotency-Key": post(b"Idempotency-Key: \xe9\r\n", LENGTH),
    "all ways to go on": get(b"/livez", b"Connection: keep-alive, close, upgrade\r\n"),
    "unknown Expect": post(b"Expect: nothing\r\n", LENGTH),
    "unknown Expect of no route": get(b"/nope", b"Expect: nothing\r\n"),
    "no text in Expect": get(b"/livez", b"Expect: \xff\r\n"),
    "Expect": post(b"Expect: 100-continue\r\n", LENGTH),
    # body lengths
    "length and chunks": post(LENGTH, CHUNKED, body=b"0\r\n\r\nGET /smuggled HTTP/1.1\r\n\r\n"),
    "chunks and length": post(CHUNKED, LENGTH, body=b"f\r\n" + JOB + b"\r\n0\r\n\r\n"),
    "two lengths": post(LENGTH, b"Content-Length: 16\r\n"),
    "the same length twice": post(LENGTH, LENGTH),
    "list of lengths": post(b"Content-Length: 15, 15\r\n"),
    "negative length": post(b"Content-Length: -1\r\n"),
    "length with a sign": post(b"Content-Length: +15\r\n"),
    "length in hex": post(b"Content-Length: 0xf\r\n"),
    "length beyond all numbers": post(b"Content-Length: 99999999999999999999999\r\n"),
    "unknown coding": post(b"Transfer-Encoding: banana\r\n"),
    "chunked twice": post(b"Transfer-Encoding: chunked, chunked\r\n"),
    "chunked and identity": post(CHUNKED, b"Transfer-Encoding: identity\r\n"),
    "nearly chunked": post(b"Transfer-Encoding: xchunked\r\n"),
    "chunked with a tab": post(b"Transfer-Encoding:\x0bchunked\r\n", body=b"0\r\n\r\n"),
    "chunks in HTTP/1.0": b"POST /v1/jobs HTTP/1.0\r\n" + CHUNKED + b"\r\nf\r\n" + JOB + b"\r\n0\r\n\r\n",
    "chunk of no size": post(CHUNKED, body=b"zz\r\nabc"),
    "chunk of a huge size": post(CHUNKED, body=b"ffffffffffffffffff\r\nabc"),
    "chunk of a negative size": post(CHUNKED, body=b"-1\r\nabc"),
    "chunk with a long extension": post(CHUNKED, body=b"f;" + b"a" * 100_000 + b"\r\n" + JOB + b"\r\n0\r\n\r\n"),
    "chunk without an end": post(CHUNKED, body=b"f\r\n" + JOB + b"xx0\r\n\r\n"),
    "half a chunk": post(CHUNKED, body=b"f\r\n{"),
    "trailers": post(CHUNKED, body=b"f\r\n" + JOB + b"\r\n0\r\nX: a\r\n\r\n"),
    "many trailers": post(CHUNKED, body=b"f\r\n" + JOB + b"\r\n0\r\n" + b"X: aaaa\r\n" * 50_000 + b"\r\n"),
    "broken trailers": post(CHUNKED, body=b"f\r\n" + JOB + b"\r\n0\r\n\0\0: a\r\n\r\n"),
    "half a body": post(b"Content-Length: 100\r\n"),
    "no body": post(LENGTH, body=b""),
    "body of a GET": get(b"/livez", b"Content-Length: 5\r\n") + b"hello",
    "body of a HEAD": get(b"/livez", b"Content-Length: 5\r\n", method=b"HEAD") + b"hello",
    # pipelined requests
    "many at once": get() * 200,
    "noise after a request": get() + b"\0\0\0\r\n\r\n",
    "noise after a body": post(LENGTH) + b"\xff" * 100,
    # other protocols
    "websocket": get(b"/livez", UPGRADE, b"Sec-WebSocket-Version: 13\r\n") + b"\x81\x85\0\0\0\0hello",
    "h2c": get(b"/livez", b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"),
    "upgrade with a body": post(UPGRADE, LENGTH),
    "upgrade with broken chunks": post(UPGRADE, CHUNKED, body=b"zzz"),
    "noise after an upgrade": get(b"/livez", UPGRADE) + b"\0\0\0garbage\r\n\r\n",
    # encodings
    "gzip": packed(b"gzip", gzip.compress(JOB)),
    "falsely gzip": packed(b"gzip", JOB),
    "half a gzip": packed(b"gzip", gzip.compress(JOB)[:20]),
    "two gzips": packed(b"gzip", gzip.compress(b'{"kind":') + gzip.compress(b'"echo"}')),
    "deflate": packed(b"deflate", zlib.compress(JOB)),
    "falsely deflate": packed(b"deflate", JOB),
    "brotli": packed(b"br", JOB),
    "zstandard": packed(b"zstd", JOB),
    "unknown encoding": packed(b"banana", JOB),
    "gzip of gzip": packed(b"gzip, gzip", gzip.compress(gzip.compress(JOB))),
    "falsely gzip where no body is": packed(b"gzip", JOB, b"GET"),
    "bomb": packed(b"gzip", BOMB),
    "bomb where no body is": packed(b"gzip", BOMB, b"GET"),
    "multipart": post(LENGTH).replace(b"application/json", b"multipart/form-data"),
    "no text in Content-Type": post(LENGTH).replace(b"application/json", b"\xff/\xfe"),
    "two content types": post(b"Content-Type: text/plain\r\n", LENGTH),
}


def mutated(request: bytes, chance: random.Random) -> bytes:
    """Return a request with some bytes flipped, cut, doubled, or replaced by parts of others."""
    text = bytearray(request[:4_000])
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(text) + 1)
        match chance.randrange(5):
            case 0:
                text[at : at + 1] = bytes([chance.randrange(256)])
            case 1:
                del text[at : at + chance.randint(1, 20)]
            case 2:
                text[at:at] = text[at : at + chance.randint(1, 40)]
            case 3:
                other = chance.choice(_CORPUS)[:4_000]
                text[at:at] = other[chance.randrange(len(other) + 1) :][: chance.randint(1, 60)]
            case _:
                text[at:at] = chance.choice((b"\r\n", b"\0", b"\xff", b": ", b"%00", b"{", b"-1", b"e999", b'"', b"\n"))
    return bytes(text)


_CORPUS = [*CORPUS.values()]


def answers_in(text: bytes) -> list[RawAnswer]:
    """Return the responses on one connection. It must have no other bytes, but the last may be truncated."""
    answers = []
    while text:
        head, _, text = text.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        version, status, _ = first.split(" ", 2)
        assert version in ("HTTP/1.1", "HTTP/1.0", "HTTP/0.9"), first
        headers = dict(line.split(": ", 1) for line in lines)
        has_body = not text.startswith(b"HTTP/")  # responses to HEAD have a length and no body
        length = int(headers.get("Content-Length", "0")) if has_body else 0
        answers.append(RawAnswer(int(status), headers, text[:length]))
        text = text[length:]
    return answers


def check_raw(answer: RawAnswer) -> None:
    """Check the response to a bad request against the contract."""
    assert answer.status < 500, answer
    if answer.status == 100:
        return
    assert answer.headers["Server"] == "erelong"
    assert answer.headers["X-Request-Id"]
    if answer.status >= 400 and answer.body:
        assert answer.headers["Content-Type"].startswith("application/problem+json"), answer
        problem = orjson.loads(answer.body)
        assert problem["status"] == answer.status
        assert "b'" not in problem["detail"], answer  # bytes as Python shows them
        assert problem["request_id"] == answer.headers["X-Request-Id"]
