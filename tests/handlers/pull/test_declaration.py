"""Pull kinds: their declarations, and the check of their params."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from erelong.errors import Invalid
from erelong.handlers.kinds import Kind
from erelong.handlers.registry import make_kinds
from erelong.settings.kinds import KindSettings
from erelong.settings.section import ConfigError
from erelong.settings.sections import Config

SCHEMA = {"type": "object", "required": ["url"], "properties": {"url": {"type": "string"}, "sizes": {"type": "array"}}}


def make(schema: dict[str, Any] | Path | None) -> Kind:
    return make_kinds(Config(kinds={"thumbnail": KindSettings(pull=True, params_schema=schema)}))["thumbnail"]


def test_kind_without_a_schema_accepts_any_object() -> None:
    kind = make(None)

    kind.params.check(b'{"anything": [1, 2]}')

    assert (kind.type, kind.params_schema) == ("pull", {"type": "object"})


def test_params_must_match_the_schema() -> None:
    with pytest.raises(Invalid) as caught:
        make(SCHEMA).params.check(b'{"sizes": 3}')

    assert [fault.pointer for fault in caught.value.faults] == ["/url", "/sizes"]
    assert caught.value.faults[0].detail == "is required"


def test_pointer_of_a_fault_is_escaped() -> None:
    schema = {"type": "object", "properties": {"a/b": {"properties": {"~c": {"type": "integer"}}}}}

    with pytest.raises(Invalid) as refusal:
        make(schema).params.check(b'{"a/b": {"~c": "x"}}')

    assert [fault.pointer for fault in refusal.value.faults] == ["/a~1b/~0c"]


def test_schema_may_be_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "thumbnail.json"
    path.write_text('{"type": "object", "maxProperties": 0}', encoding="utf-8")

    with pytest.raises(Invalid):
        make(path).params.check(b'{"a": 1}')


@pytest.mark.parametrize("text", [None, "{", '{"type": "objct"}'])
def test_invalid_schema_stops_the_start(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "thumbnail.json"
    if text is not None:
        path.write_text(text, encoding="utf-8")

    with pytest.raises(ConfigError, match=r"kinds\.thumbnail\.pull: params_schema"):
        make(path)


def test_job_of_a_pull_kind_never_runs_in_the_service() -> None:
    kind = make(None)

    assert (kind.is_pull, kind.runner) == (True, None)


@pytest.mark.parametrize("ref", ["http://169.254.169.254/x.json", "https://app.example/s.json#/a", "other.json", "#/a"])
def test_reference_out_of_a_schema_stops_the_start_and_fetches_nothing(
    ref: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("urllib.request.urlopen", lambda *_: pytest.fail("fetched"))
    schema = {"type": "object", "properties": {"x": {"items": {"$ref": ref}}}}

    with pytest.raises(ConfigError, match=r"kinds\.thumbnail\.pull: params_schema refers to .*nothing is fetched"):
        make(schema)


def test_references_within_a_schema_are_followed() -> None:
    schema = {
        "$id": "https://app.example/root",
        "properties": {"a": {"$ref": "#/$defs/a"}, "b": {"$ref": "b"}, "c": {"$ref": "#anchored"}},
        "$defs": {
            "a": {"type": "integer"},
            "b": {"$id": "b", "type": "integer"},
            "c": {"$anchor": "anchored", "type": "integer"},
        },
    }

    with pytest.raises(Invalid) as refusal:
        make(schema).params.check(b'{"a": "x", "b": "x", "c": "x"}')

    assert [fault.pointer for fault in refusal.value.faults] == ["/a", "/b", "/c"]
