"""Schemas made of annotations: the service accepts them, and they permit exactly what the function takes."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Annotated, Any, Literal
from uuid import UUID

import jsonschema
import pytest
from pydantic import BaseModel, Field

from erelong import Attempt, kind
from erelong.client.schemas import declaration, params_schema
from erelong.handlers.pull.rules import find_faults

ODD = object()


class Shape(Enum):
    ROUND = "round"


@dataclass
class Point:
    x: float
    y: float = 0.0
    tags: list[str] = field(default_factory=list)


@dataclass
class Tree:
    leaf: Point
    left: Tree | None = None


class Part(BaseModel):
    name: str = Field(pattern="^[a-z]+$", max_length=3)


class Order(BaseModel):
    parts: list[Part]
    pattern: str = ""  # a name, not a keyword


class Chain(BaseModel):
    next: Chain | None = None


def schema_of(annotation: Any, default: Any = ...) -> dict[str, Any]:
    """Return the schema of a function with one parameter `a` besides an int `n`."""

    def function(n: int = 1, a: Any = default) -> None: ...

    function.__annotations__["a"] = annotation
    if default is ...:
        function.__defaults__ = None
    return params_schema(kind("k")(function))


@pytest.mark.parametrize(
    ("annotation", "good", "bad"),
    [
        (int, 3, "3"),
        (float, 3, "x"),
        (bool, True, 1),
        (str, "a", 1),
        (None, None, 0),
        (str | None, None, 1),
        (list[int], [1], ["a"]),
        (tuple[int, str], [1, "a"], [1]),
        (tuple[int, ...], [1, 2, 3], ["a"]),
        (set[str], ["a"], [1]),
        (dict[str, int], {"a": 1}, {"a": "b"}),
        (Literal["a", 1], 1, 2),
        (Annotated[int, "of users"], 3, "3"),
        (Shape, "round", "square"),
        (datetime, "2027-01-01T00:00:00Z", 3),
        (UUID, "8a6e0804-2bd0-4672-b79d-d97027f9071a", 3),
        (Point, {"x": 1}, {"y": 1}),
        (Point, {"x": 1, "y": 2.5, "tags": ["t"]}, {"x": 1, "z": 2}),
        (Tree, {"leaf": {"x": 1}, "left": {"leaf": {"x": 2}}}, {"leaf": {"x": 1}, "left": {"leaf": {}}}),
        (Order, {"parts": [{"name": "b"}], "pattern": "x"}, {"parts": [{}]}),
        (Chain, {"next": {"next": None}}, {"next": 3}),
        (list[Point | None], [None, {"x": 1}], [{"x": "a"}]),
    ],
)
def test_schema_permits_what_the_annotation_does(annotation: Any, good: Any, bad: Any) -> None:
    schema = schema_of(annotation)

    assert find_faults(schema) == []
    jsonschema.validate({"n": 1, "a": good}, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"n": 1, "a": bad}, schema)


@pytest.mark.parametrize("annotation", [Any, object, complex, "a.b.c"])
def test_annotation_that_says_nothing_of_json_permits_anything(annotation: Any) -> None:
    if isinstance(annotation, str):

        def function(a) -> None: ...  # type: ignore[no-untyped-def]

        schema = params_schema(kind("k")(function))
    else:
        schema = schema_of(annotation)

    assert schema["properties"]["a"] == {}


def test_defaults_are_shown_and_make_params_optional() -> None:
    @kind("k", timeout="2m", retry={"max_attempts": 3}, queue="q")
    def function(
        attempt: Attempt, path: str, width: int = 800, *, shape: Shape = Shape.ROUND, odd: Any = ODD
    ) -> None: ...

    assert declaration(function) == {
        "params_schema": {
            "type": "object",
            "properties": {
                "path": {"type": "string"},
                "width": {"type": "integer", "default": 800},
                "shape": {"enum": ["round"], "default": "round"},
                "odd": {},
            },
            "additionalProperties": False,
            "required": ["path"],
        },
        "timeout": "2m",
        "retry": {"max_attempts": 3},
    }


def test_function_that_takes_any_names_permits_them() -> None:
    @kind("k")
    def function(**more: int) -> None: ...

    assert params_schema(function) == {"type": "object", "properties": {}, "additionalProperties": True}


def test_single_model_is_all_params() -> None:
    @kind("k")
    def function(attempt: Attempt, order: Order) -> None: ...

    draft = function.job(Order(parts=[Part(name="b")]))
    jsonschema.validate(draft.params, params_schema(function))

    assert find_faults(params_schema(function)) == []
    assert draft.params == {"parts": [{"name": "b"}], "pattern": ""}


def test_classes_of_one_name_have_schemas_of_their_own() -> None:
    other: Any = dataclass(type("Point", (), {"__annotations__": {"z": int}}))

    schema = schema_of(tuple[Point, other])

    assert {*schema["$defs"]} == {"Point", "Point_"}


def test_annotation_that_is_not_defined_is_named() -> None:
    @kind("k")
    def function(a: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(TypeError, match="the annotations of k cannot be read: name 'Missing' is not defined"):
        params_schema(function)
