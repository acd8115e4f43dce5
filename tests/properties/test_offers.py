"""The result of parsing a body does not depend on the bodies before it."""

from __future__ import annotations

from typing import Any, cast

import orjson
from hypothesis import example, given
from hypothesis import strategies as st

from erelong.api.submit_parser import MAX_TEMPLATES, SubmitParser
from erelong.clock.zones import ZoneSource
from erelong.errors import Forbidden, Invalid
from erelong.handlers.registry import make_kinds
from erelong.lanes.lanes import Lanes
from erelong.model.caller import ANYBODY, Caller, Scope
from erelong.model.submission import NewJob
from erelong.service.factory import MAX_SHARED, MAX_SOUND, JobFactory
from erelong.service.services import Services
from erelong.settings.queues import QueueSettings
from erelong.settings.sections import Config
from tests.support.builders import NOW
from tests.support.lanes import make_lanes as build_lanes

CONFIG = Config(queues={"mail": QueueSettings(timeout=7)})
KINDS = make_kinds(CONFIG)
LIMITED = Caller(name="mail", scopes=frozenset(Scope), queues=frozenset({"mail"}))
SECONDS = NOW / 1_000_000

# Valid and invalid values, with neighbours that are equal in Python but not in JSON.
VALUES: dict[str, list[Any]] = {
    "kind": ["echo", "http", "nope", None, 1],
    "queue": ["mail", "default", None, "", 1],
    "priority": [0, 0.0, -0.0, False, 1, 1.0, True, None, 101, "1"],
    "timeout": [None, 5, 5.0, "5s", 0, 1e9, True],
    "retry": [None, {}, {"max_attempts": 3}, {"max_attempts": 3.0}, {"max_attempts": True}],
    "expires_after": [None, 60, 60.0, "PT1M", -1],
    "labels": [None, {}, {"shop": "one"}, {"shop": 1}],
    "key": [None, "k", "", 1],
    "on_conflict": [None, "reject", "keep", "none"],
    "params": [None, {}, {"sleep": 1}, {"sleep": -1}, {"text": "x" * 70_000}, [], "{}", False, {"a": {"b": [1.5]}}],
    "delay": [0, 30, 30.5, "1m", None, True, -1, 2e9, 1e12, "soon", [], 7e-7],
    "execute_at": [
        SECONDS,
        SECONDS - 60,
        int(SECONDS) + 5,
        "2030-01-01T00:00:00Z",
        "2030-01-01",
        None,
        True,
        1,
        1e12,
        {},
    ],
    "stranger": [1],
}
USUAL = {"kind": "echo", "queue": "mail", "params": {"order": 1}, "delay": 30}
BODIES = st.one_of(
    st.fixed_dictionaries(
        {"kind": st.sampled_from(VALUES["kind"][:2])},
        optional={name: st.sampled_from(values) for name, values in VALUES.items() if name != "kind"},
    ),
    st.fixed_dictionaries({}, optional={name: st.sampled_from(values) for name, values in VALUES.items()}),
    st.sampled_from(VALUES["params"]),
)
SINGLE = st.sampled_from([(name, value) for name, values in VALUES.items() for value in values]).map(
    lambda field: {**USUAL, field[0]: field[1]}
)

HOOK: dict[str, list[Any]] = {
    "url": ["https://app.example/a", "https://app.example/b", "http://127.0.0.1/", "ftp://app.example", 1],
    "method": ["POST", "get", "FETCH"],
    "headers": [{}, {"X-A": "1"}, {"X-A": 1}, {"Host": "x"}, {"X-A": "a\nb"}],
    "json": [None, {}, {"order": 1}, [1.5], "x" * 70_000],
    "body": [None, "text"],
    "stranger": [1],
}
HOOKS = st.fixed_dictionaries(
    {"url": st.sampled_from(HOOK["url"])},
    optional={name: st.sampled_from(values) for name, values in HOOK.items() if name != "url"},
).map(lambda params: {"kind": "http", "params": params})


class OnlyFactory:
    """The part of the services that a parser uses."""

    def __init__(self, lanes: Lanes) -> None:
        self.factory = JobFactory(lanes=lanes, kinds=KINDS, config=CONFIG, zones=ZoneSource())


def make_parser(lanes: Lanes) -> SubmitParser:
    return SubmitParser(services=cast("Services", OnlyFactory(lanes)), max_horizon=CONFIG.jobs.max_horizon)


def make_lanes() -> Lanes:
    return build_lanes(CONFIG.queues, aging=1)


def parsed(new_jobs: SubmitParser, body: Any, caller: Caller) -> Any:
    """Return the new job without its random part, or the text of the refusal."""
    sent = orjson.dumps(body)
    read = orjson.loads(sent)
    try:
        new_job = new_jobs.read(read, NOW, caller)
    except (Invalid, Forbidden) as problem:
        return repr(problem), problem.detail, str(problem.faults)
    assert orjson.dumps(read) == sent
    return repr(new_job._replace(job=new_job.job._replace(token="")))  # as text, since 1 equals 1.0 and True


@given(st.lists(st.tuples(BODIES | SINGLE, st.sampled_from([ANYBODY, LIMITED])), min_size=2, max_size=12))
@example([(USUAL, ANYBODY), ({**USUAL, "delay": None}, ANYBODY)])
@example([(USUAL, ANYBODY), ({**USUAL, "delay": 2e9}, ANYBODY)])
@example([(USUAL, ANYBODY), ({**USUAL, "execute_at": SECONDS}, ANYBODY)])
@example([(USUAL, ANYBODY), ({**USUAL, "delay": True}, ANYBODY)])
@example([(USUAL, ANYBODY), ({**USUAL, "delay": 7e-7}, ANYBODY)])
@example(2 * [({"kind": "echo", "execute_at": SECONDS - 60}, ANYBODY)])
@example([(USUAL, ANYBODY), ({**USUAL, "params": []}, ANYBODY)])
@example([(USUAL, ANYBODY), ({**USUAL, "params": {"sleep": -1}}, ANYBODY)])
@example([({**USUAL, "priority": 1}, ANYBODY), ({**USUAL, "priority": True}, ANYBODY)])
@example([({**USUAL, "queue": "default"}, ANYBODY), ({**USUAL, "queue": "default"}, LIMITED)])
@example([({**USUAL, "expires_after": 60}, ANYBODY), ({**USUAL, "expires_after": 60, "delay": 90}, ANYBODY)])
@example(2 * [({**USUAL, "key": "k", "on_conflict": "keep"}, ANYBODY)])
def test_parsing_does_not_depend_on_earlier_bodies(bodies: list[tuple[Any, Caller]]) -> None:
    lanes = make_lanes()
    new_jobs = make_parser(lanes)

    read = [parsed(new_jobs, body, caller) for body, caller in bodies]

    assert read == [parsed(make_parser(lanes), body, caller) for body, caller in bodies]


@given(st.lists(HOOKS, min_size=2, max_size=12))
@example([{"kind": "http", "params": {"url": HOOK["url"][0], "json": 1, **more}} for more in ({}, {}, {"body": "x"})])
@example([{"kind": "http", "params": {"url": HOOK["url"][0], **more}} for more in ({}, {"json": 1}, {"body": "x"}) * 2])
@example(
    [{"kind": "http", "params": {"url": HOOK["url"][0], "json": 1, "headers": h}} for h in ({}, {}, {"Host": "x"})]
)
def test_checking_a_webhook_does_not_depend_on_earlier_ones(bodies: list[Any]) -> None:
    new_jobs = make_parser(make_lanes())

    read = [parsed(new_jobs, body, ANYBODY) for body in bodies]

    assert read == [parsed(make_parser(make_lanes()), body, ANYBODY) for body in bodies]


def test_checked_params_are_bounded_in_number_and_size() -> None:
    new_jobs = make_parser(make_lanes())

    for path in [*range(MAX_SOUND + 10), "x" * MAX_SHARED]:
        new_jobs.read({"kind": "http", "params": {"url": f"https://app.example/{path}", "json": 1}}, NOW, ANYBODY)

    sound = new_jobs._services.factory._sound
    assert 0 < len(sound) <= MAX_SOUND
    assert max(len(text) for _, text in sound) <= MAX_SHARED


def test_new_queue_settings_apply_to_the_next_body() -> None:
    lanes = make_lanes()
    new_jobs = make_parser(lanes)
    timeouts = []

    for timeout in (None, 8.0, 9.0, None):
        lanes.configure("mail", QueueSettings(timeout=timeout) if timeout else None)
        timeouts += [new_jobs.read(USUAL, NOW, ANYBODY).job.timeout for _ in range(2)]

    assert timeouts == [7, 7, 8, 8, 9, 9, 7, 7]


def test_each_job_has_a_token_of_its_own() -> None:
    new_jobs = make_parser(make_lanes())

    tokens = {new_jobs.read(USUAL, NOW, ANYBODY).job.token for _ in range(2_000)}

    assert len(tokens) == 2_000


def test_templates_are_bounded_however_many_queues_are_named() -> None:
    new_jobs = make_parser(make_lanes())

    for number in range(3 * MAX_TEMPLATES):
        new_jobs.read({**USUAL, "queue": f"q{number}"}, NOW, ANYBODY)

    assert len(new_jobs._templates) <= MAX_TEMPLATES


def test_conflict_without_a_key_is_left_to_the_default() -> None:
    new_jobs = make_parser(make_lanes())

    first, second = (new_jobs.read({**USUAL, "on_conflict": None}, NOW, ANYBODY) for _ in range(2))

    assert first.on_conflict is second.on_conflict is NewJob(first.job).on_conflict
