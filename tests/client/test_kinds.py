"""Kinds made of functions: their drafts, and params as arguments."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any

import pytest
from pydantic import BaseModel

from erelong import Attempt, Draft, kind
from erelong.client.values import load, plain

ATTEMPT = Attempt(1, "t", "k", "q", 1, 0, 0, 60.0)


@dataclass
class Size:
    width: int
    height: int = 1


class Shape(Enum):
    ROUND = "round"


class Picture(BaseModel):
    path: str


@kind("resize", queue="images")
def resize(attempt: Attempt, path: str, size: Size, *, shape: Shape = Shape.ROUND) -> Size:
    return Size(size.width, attempt.number)


def test_arguments_become_params_and_options_the_defaults_of_the_kind() -> None:
    draft = resize.job("a.png", size=Size(3))

    assert draft.body() == {"kind": "resize", "params": {"path": "a.png", "size": Size(3)}, "queue": "images"}
    assert draft.with_options(queue="other").body()["queue"] == "other"


def test_wrong_arguments_are_refused_before_anything_is_sent() -> None:
    with pytest.raises(TypeError, match="missing a required argument: 'size'"):
        resize.job("a.png")  # type: ignore[call-arg]  # the type checker sees it too


def test_params_become_arguments_by_their_annotations() -> None:
    positional, named = resize.arguments({"path": "a", "size": {"width": 3}, "shape": "round"}, ATTEMPT)

    assert (positional, named) == ([ATTEMPT, "a", Size(3)], {"shape": Shape.ROUND})


def test_annotation_with_metadata_reads_as_its_type() -> None:
    @kind("k")
    def function(shape: Annotated[Shape, "of the frame"], sizes: list[Annotated[Size, "outer first"]]) -> None: ...

    @kind("k")
    def whole(picture: Annotated[Picture, "in the bucket"]) -> None: ...

    arguments = function.arguments({"shape": "round", "sizes": [{"width": 3}]}, ATTEMPT)

    assert arguments == ([Shape.ROUND, [Size(3)]], {})
    assert whole.arguments({"path": "a.png"}, ATTEMPT) == ([Picture(path="a.png")], {})


def test_params_that_do_not_fit_are_named() -> None:
    @kind("k")
    def function(a: int, b: int = 2) -> None: ...

    with pytest.raises(TypeError, match="a is missing, c is unknown"):
        function.arguments({"c": 1}, ATTEMPT)


def test_calling_a_kind_runs_its_function_here() -> None:
    @kind("double")
    def double(n: int) -> int:
        return 2 * n

    assert double(4) == 8


def test_function_can_take_any_names() -> None:
    @kind("k")
    def function(a: int, **more: int) -> None: ...

    assert function.job(1, b=2).params == {"a": 1, "b": 2}
    assert function.arguments({"a": 1, "b": 2}, ATTEMPT) == ([1], {"b": 2})


def test_params_have_names() -> None:
    @kind("k")
    def function(*numbers: int) -> None: ...

    with pytest.raises(TypeError, match=r"cannot fill \*numbers"):
        function.job(1)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Size, Size(1, 2)),
        (list[Size], [Size(1)]),
        (dict[str, Size], {"a": Size(1)}),
        (Size | None, Size(4)),
        (Size | None, None),
        (tuple[int, Size], (1, Size(2))),
        (Picture, Picture(path="p")),
        (Any, {"x": [1, None]}),
        (int, 3),
    ],
)
def test_value_survives_its_way_through_json(annotation: Any, value: Any) -> None:
    assert load(annotation, plain(value)) == value


def test_value_without_a_json_form_is_named() -> None:
    with pytest.raises(TypeError, match="is not JSON"):
        plain(object())
    with pytest.raises(ValueError, match="JSON"):
        plain(float("nan"))


def test_draft_shows_its_content() -> None:
    assert "'http'" in repr(Draft("http", {"url": "x"}, delay=3))
