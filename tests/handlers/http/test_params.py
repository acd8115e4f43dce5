"""The params of an http job: those that can never be sent are refused at submit, with pointer and remedy."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError

from erelong.clock import instants as clock
from erelong.errors import Invalid
from erelong.handlers.http.params import MAX_KNOWN, MAX_SHARED, PARAMS_SCHEMA, HttpParams, ParamsReader, read_params
from erelong.handlers.http.runner import Webhooks
from erelong.settings.sections import WebhooksSection

URL = "https://app.example/hook"


@pytest.fixture
def http() -> Webhooks:  # a check needs no session
    return Webhooks(config=WebhooksSection(), now=clock.now)


def faults_of(http: Webhooks, **params: Any) -> list[str]:
    with pytest.raises(Invalid) as refusal:
        http.check(orjson.dumps(params))
    return [repr(fault) for fault in refusal.value.faults]


@pytest.mark.parametrize(
    "params",
    [
        {"url": URL},
        {"url": "HTTP://App.Example:8080/a%2Fb?q=ä#part"},
        {"url": "http://[2606:4700::1111]:9/"},
        {"url": "http://a_b.example./"},
        {"url": f"http://h/{'x' * 2_039}"},
        {"url": URL, "method": "get"},
        {"url": URL, "headers": {"X-Mine": "ä\t1", "User-Agent": "me", "Content-Type": "text/csv", "host-like": "1"}},
        {"url": URL, "json": None},
        {"url": URL, "body": "", "body_base64": None},
        {"url": URL, "body_base64": "AAE="},
    ],
)
def test_params_that_can_be_sent_are_accepted(http: Webhooks, params: dict[str, Any]) -> None:
    http.check(orjson.dumps(params))

    assert read_params(orjson.dumps(params)).keys() == params.keys()


@pytest.mark.parametrize(
    ("url", "detail"),
    [
        ("ftp://app.example/", 'should start with http:// or https:// and a host, not "ftp://app.example/"'),
        ("/hook", 'should start with http:// or https:// and a host, not "/hook"'),
        ("//app.example/hook", 'should start with http:// or https:// and a host, not "//app.example/hook"'),
        ("http://", 'should start with http:// or https:// and a host, not "http://"'),
        ("http:///hook", 'should start with http:// or https:// and a host, not "http:///hook"'),
        ("https:app.example", 'should start with http:// or https:// and a host, not "https:app.example"'),
        ("http://u:secret@h/", "contains a user name or password: send an Authorization header instead"),
        ("http://u@h/", "contains a user name or password: send an Authorization header instead"),
        ("http://:secret@h/", "contains a user name or password: send an Authorization header instead"),
        ("http://h:99999/", "is not a URL: Port out of range 0-65535"),
        ("http://[::1/", "is not a URL: Invalid IPv6 URL"),
        (" http://h/", 'has a space or control character: percent-encode it in " http://h/"'),
        ("http://h/a b", 'has a space or control character: percent-encode it in "http://h/a b"'),
        ("http://h/\r\nX: 1", 'has a space or control character: percent-encode it in "http://h/\\r\\nX: 1"'),
        ("http://a..b/", 'has an invalid host: "a..b"'),
        ("http://a%2fb/", 'has an invalid host: "a%2fb"'),
        (f"http://{'a' * 64}.b/", f'has an invalid host: "{"a" * 56}...'),
        (f"http://h/{'x' * 2_040}", "has 2049 characters: send at most 2048"),
        (7, "should be text such as https://app.example/hook, not 7"),
    ],
)
def test_url_that_cannot_be_called_is_refused(http: Webhooks, url: object, detail: str) -> None:
    assert faults_of(http, url=url) == [f"/url: {detail}"]


def test_refused_password_is_not_repeated(http: Webhooks) -> None:
    with pytest.raises(Invalid) as refusal:
        http.check(b'{"url": "http://u:hunter2@h/"}')

    assert "hunter2" not in f"{refusal.value.detail} {refusal.value.faults}"


@pytest.mark.parametrize(
    "name",
    [
        "Host",
        "content-length",
        "Transfer-Encoding",
        "CONNECTION",
        "Proxy-Authorization",
        "webhook-id",
        "Webhook-Signature",
        "X-Erelong-Attempt",
        "Keep-Alive",
        "TE",
        "Trailer",
        "Upgrade",
        "Expect",
        "Accept-Encoding",
    ],
)
def test_header_that_the_service_sets_is_refused(http: Webhooks, name: str) -> None:
    assert faults_of(http, url=URL, headers={name: "1"}) == [
        f'/headers/{name}: is set by the service: leave "{name}" out'
    ]


@pytest.mark.parametrize("name", ["", "a b", "a:b", "a\r\nb", "ä", "x" * 101])
def test_invalid_header_name_is_refused(http: Webhooks, name: str) -> None:
    assert "is not a header name" in faults_of(http, url=URL, headers={name: "1"})[0]


def test_headers_are_bounded_in_number_and_size(http: Webhooks) -> None:
    http.check(orjson.dumps({"url": URL, "headers": {f"X-{number}": "" for number in range(64)}}))
    http.check(orjson.dumps({"url": URL, "headers": {"X": "ä" * 4_095, "Y": ""}}))

    many = faults_of(http, url=URL, headers={f"X-{number}": "" for number in range(65)})
    long = faults_of(http, url=URL, headers={"X": "ä" * 4_095, "Y": "12"})

    assert many == ["/headers: has 65 headers: send at most 64"]
    assert long == ["/headers: has 8194 bytes of names and values: send at most 8192"]


@pytest.mark.parametrize("value", ["a\r\nX: 1", "a\nb", "a\x00", "\x7f"])
def test_header_value_with_a_line_break_is_refused(http: Webhooks, value: str) -> None:
    (fault,) = faults_of(http, url=URL, headers={"X-Mine": value})

    assert fault.startswith("/headers/X-Mine: has a line break or control character")


@pytest.mark.parametrize(
    ("params", "fault"),
    [
        ({}, "/url: is required"),
        ({"url": URL, "data": 1}, "/data: is unknown; known fields: url, method, headers, json, body, body_base64"),
        ({"url": URL, "value": 1}, "/value: is unknown;"),
        (
            {"url": URL, "method": "FETCH"},
            '/method: should be one of DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT, not "FETCH"',
        ),
        ({"url": URL, "headers": []}, "/headers: should be an object, not a list"),
        ({"url": URL, "headers": {"X": 1}}, "/headers/X: should be a valid string, not 1"),
        ({"url": URL, "body": {}}, "/body: should be a valid string, not an object"),
        ({"url": URL, "body_base64": "a"}, '/body_base64: should be standard base64 with padding, not "a"'),
        ({"url": URL, "body_base64": "-_=="}, '/body_base64: should be standard base64 with padding, not "-_=="'),
        ({"url": URL, "json": None, "body": "x"}, ": has more than one of json, body and body_base64: send one"),
        ({"url": URL, "body_base64": "", "body": ""}, ": has more than one of json, body and body_base64: send one"),
    ],
)
def test_params_that_cannot_be_sent_are_refused(http: Webhooks, params: dict[str, Any], fault: str) -> None:
    assert faults_of(http, **params)[0].startswith(fault)


def test_all_faults_are_reported_at_once(http: Webhooks) -> None:
    faults = faults_of(http, url="x", method="x", headers={"Host": "x", "X": "\n"}, json=1, extra=1)

    assert [fault.split(":")[0] for fault in faults] == ["/url", "/method", "/headers/Host", "/headers/X", "/extra"]


def test_schema_has_the_accepted_params() -> None:
    schema = PARAMS_SCHEMA

    assert list(schema["properties"]) == ["url", "method", "headers", "json", "body", "body_base64"]
    assert (schema["required"], schema["additionalProperties"]) == (["url"], False)
    assert schema["properties"]["method"] == {
        "type": "string",
        "enum": ["DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"],
        "default": "POST",
        "title": "Method",
    }


URLS: list[Any] = ["https://app.example/a", "https://app.example/b?c=1", "ftp://app.example", 7]
HEADERS: list[Any] = [{}, {"X-A": "1"}, {"x-a": "1"}, {"Host": "x"}, {"json": "x"}]
NUMBERS: list[Any] = [1, -2.5, 1e300, 2**70, None, "2", ["\u00e4"], {"json": {"url": "b"}}]
SENT = st.fixed_dictionaries(
    {},
    optional={
        "url": st.sampled_from(URLS),
        "method": st.sampled_from(["POST", "get", "FETCH"]),
        "headers": st.sampled_from(HEADERS),
        "json": st.sampled_from(NUMBERS),
        "body": st.sampled_from([None, "text"]),
        "body_base64": st.sampled_from(["aGk=", "?"]),
    },
)
TEXTS = st.one_of(
    SENT.map(lambda params: json.dumps(params).encode()),
    SENT.map(lambda params: json.dumps(params, ensure_ascii=False, separators=(",", ":")).encode()),
    st.sampled_from([b"[]", b"{", b"null", b'{"json":NaN}', b'{"json":1,"json":2,"url":"https://a.example"}']),
)


def read_by(read: Callable[[bytes], HttpParams], text: bytes) -> Any:
    try:
        return sorted(map(repr, read(text).items()))
    except ValidationError as error:
        return repr(error.errors(include_url=False, include_context=False))  # NaN equals nothing


@given(st.lists(TEXTS, min_size=2, max_size=8))
@example([b'{"url":"https://app.example/a","json":%d}' % number for number in (1, 2**70)])
def test_reader_reads_what_a_single_read_does(texts: list[bytes]) -> None:
    reader = ParamsReader()

    for text in [*texts, *texts]:
        assert read_by(reader.read_fast, text) == read_by(read_params, text)


def test_known_params_are_bounded_in_number_and_size() -> None:
    reader = ParamsReader()

    for path in [*range(MAX_KNOWN + 10), "x" * MAX_SHARED]:
        reader.read_fast(orjson.dumps({"url": f"https://app.example/{path}", "json": path}))

    assert 0 < len(reader._known) <= MAX_KNOWN
    assert max(map(len, reader._known)) <= MAX_SHARED
