"""The plan: when each schedule is due next."""

from __future__ import annotations

from erelong.duties.signal import Signal
from erelong.engine.recurrences.plan import Plan


def make_plan(*entries: tuple[str, int]) -> Plan:
    plan = Plan(earlier=Signal())
    for name, at in entries:
        plan.set(name, at)
    return plan


def test_due_schedules_leave_in_order_and_up_to_a_limit() -> None:
    plan = make_plan(("c", 3), ("a", 1), ("b", 2), ("late", 9))

    assert [*plan.pop(5, 2)] == [("a", 1), ("b", 2)]
    assert [*plan.pop(5, 2)] == [("c", 3)]
    assert plan.earliest == 9


def test_schedule_has_only_its_latest_time() -> None:
    plan = make_plan(("a", 1), ("b", 5), ("a", 7), ("b", 6))

    assert (plan.earliest, plan.next_of("a")) == (6, 7)
    assert plan.due_by(9, 10) == ["b", "a"]
    plan.set("b", None)
    assert [*plan.pop(9, 10)] == [("a", 7)]


def test_only_a_time_before_all_others_wakes_the_duty() -> None:
    wake = Signal()
    plan = Plan(earlier=wake)

    plan.set("a", 5)
    assert wake.is_set
    wake.is_set = False
    plan.set("b", 6)
    assert not wake.is_set
    plan.set("b", 4)
    assert wake.is_set


def test_memory_is_bounded_however_often_a_time_changes() -> None:
    plan = make_plan(*(("a", at) for at in range(100_000)))

    assert len(plan._heap) < 2_000
    assert plan.earliest == 99_999


def test_cleared_plan_has_no_time() -> None:
    plan = make_plan(("a", 1))

    plan.clear()

    assert (plan.next_of("a"), plan.earliest, [*plan.pop(9, 9)]) == (None, None, [])
