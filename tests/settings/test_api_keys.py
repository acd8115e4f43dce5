"""API keys and fingerprints: only the exact key finds its caller, and no output shows a key."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from erelong.model.caller import ANYBODY, Caller, Scope
from erelong.settings.api_keys import Keyring, fingerprint_of, is_fingerprint, new_key
from erelong.telemetry.redact import redacted

KEYS = [new_key() for _ in range(3)]
CALLERS = [Caller(name=name, scopes=frozenset({Scope.READ})) for name in ("a", "b", "c")]
KEYRING = Keyring(callers={fingerprint_of(key): caller for key, caller in zip(KEYS, CALLERS, strict=True)})


def test_each_key_finds_its_caller() -> None:
    assert [KEYRING.find(key) for key in KEYS] == CALLERS


@given(st.one_of(st.text(), st.text(st.characters(codec=None), min_size=60, max_size=60), st.sampled_from(KEYS)))
def test_any_other_text_finds_no_caller(text: str) -> None:
    assert (KEYRING.find(text) is not None) == (text in KEYS)


@given(st.sampled_from(KEYS), st.integers(0, 59), st.characters(codec="utf-8"))
def test_key_with_one_character_changed_finds_no_caller(key: str, at: int, character: str) -> None:
    changed = key[:at] + character + key[at + 1 :]

    assert (KEYRING.find(changed) is not None) == (changed in KEYS)


def test_empty_keyring_finds_no_caller() -> None:
    assert Keyring(callers={}).find(KEYS[0]) is None


def test_name_is_found_by_the_id_alone() -> None:
    assert KEYRING.name_of(KEYS[0][:17] + new_key()[17:]) == "a"
    assert KEYRING.name_of(new_key()) is None
    assert KEYRING.name_of("") is None


def test_fingerprint_reveals_nothing_of_the_secret() -> None:
    key = new_key()

    assert is_fingerprint(fingerprint_of(key))
    assert key[17:] not in fingerprint_of(key)
    assert not is_fingerprint(key)
    assert not is_fingerprint(fingerprint_of(key) + "\n")


@given(st.text(), st.text(), st.sampled_from(["", " ", "'", '"', "\n", "\\x00"]))
def test_keys_and_only_keys_are_redacted(before: str, after: str, between: str) -> None:
    key = new_key()

    assert key[17:] not in redacted(before + key + between + after)
    assert redacted(before + after) == before + after or "erl_" in before + after


def test_redacted_text_still_identifies_the_key() -> None:
    key = new_key()

    assert redacted(f'{{"a": "{key}", "b": 1}}') == f'{{"a": "{key[:17]}…", "b": 1}}'


def test_lease_tokens_in_paths_are_redacted() -> None:
    token = f"{7:010x}{'5ec7e7ab' * 4}"

    assert redacted(f"POST /v1/leases/{token}/finish HTTP/1.1") == "POST /v1/leases/0000000007…/finish HTTP/1.1"
    assert redacted("/v1/leases/{token}/finish") == "/v1/leases/{token}/finish"


@pytest.mark.parametrize(
    ("queues", "requested", "foreign"),
    [((), ["a", "b"], []), (("a",), ["a", "b", "c"], ["b", "c"]), (("a", "b"), ["b"], []), (("a",), [], [])],
)
def test_caller_is_limited_to_its_queues(queues: tuple[str, ...], requested: list[str], foreign: list[str]) -> None:
    caller = Caller(name="x", scopes=frozenset(), queues=frozenset(queues))

    assert caller.foreign(requested) == foreign
    assert [queue for queue in requested if not caller.may_use(queue)] == foreign


def test_anonymous_caller_has_all_scopes() -> None:
    assert ANYBODY.scopes == {*Scope}
    assert ANYBODY.may_use("any")
