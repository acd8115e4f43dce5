"""Reads a function's annotations: params become its arguments, its return value becomes JSON."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from inspect import Parameter
from operator import attrgetter
from types import NoneType
from typing import Any, Final, Never, NoReturn, TypeAlias, get_args

import orjson
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaWarningKind
from pydantic_core import InitErrorDetails, PydanticSerializationError, SchemaError

from erelong.attempt import Attempt
from erelong.handlers.base import AttemptFailed

Read: TypeAlias = Callable[[BaseModel, Attempt], Any]

_RETURNS_NOTHING: Final = (inspect.Signature.empty, None, NoneType, Never, NoReturn)
_RUNS_LATER: Final = (inspect.iscoroutine, inspect.isgenerator, inspect.isasyncgen)


class InvalidKind(Exception):
    """A declaration cannot be a kind; the text gives the reason and the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """How to call a function with params, and how to write its return value as JSON."""

    params_schema: dict[str, Any]
    result_schema: dict[str, Any] | None
    params: type[BaseModel]
    result: TypeAdapter[Any]
    positional: tuple[Read, ...]
    named: tuple[tuple[str, Read], ...]
    takes_any_name: bool
    reserved: frozenset[str]
    has_no_parameters: bool

    def check(self, params: bytes) -> BaseModel:
        """Read params; raise pydantic's ValidationError for those that do not fit."""
        values = self.params.model_validate_json(params)
        if self.takes_any_name and not self.reserved.isdisjoint(values.model_extra or ()):
            faults = [
                InitErrorDetails(type="extra_forbidden", loc=(name,), input=value)
                for name, value in (values.model_extra or {}).items()
                if name in self.reserved
            ]
            raise ValidationError.from_exception_data(self.params.__name__, faults)
        return values

    def arguments(self, values: BaseModel, attempt: Attempt) -> tuple[list[Any], dict[str, Any]]:
        named = {name: read(values, attempt) for name, read in self.named}
        if self.takes_any_name:
            named |= values.model_extra or {}
        return [read(values, attempt) for read in self.positional], named

    def dump(self, value: object) -> bytes | None:
        """Write a result as JSON; None stays None, NaN and Infinity become null."""
        if value is None:
            return None
        if any(runs_later(value) for runs_later in _RUNS_LATER):
            if inspect.iscoroutine(value):
                value.close()  # otherwise Python warns that it was never awaited
            name = type(value).__name__
            raise _not_json(f'a {name}, which has not run: make the function an "async def", or return the value')
        try:
            text = self.result.dump_json(value, warnings=False)
            if b"NaN" in text or b"Infinity" in text:  # a model may allow them, or a string may contain them
                orjson.loads(text)
        except (PydanticSerializationError, orjson.JSONDecodeError) as error:
            raise _not_json(
                f"a value that is not JSON: {error}; return plain data, dataclasses or pydantic models"
            ) from error
        return text


def read_signature(function: Callable[..., Any]) -> Signature:
    """Make the schema of a function; raise InvalidKind when it cannot have one."""
    signature = _resolved(function)
    parameters = signature.parameters.values()
    by_params = [parameter for parameter in parameters if not _is_attempt(parameter)]
    try:
        if len(by_params) == 1 and _is_model(by_params[0]):
            params: type[BaseModel] = by_params[0].annotation
            fields: dict[str, Read] = {by_params[0].name: _read_whole}
        else:
            params, fields = _model_of(function, by_params)
        result = TypeAdapter(Any if signature.return_annotation in _RETURNS_NOTHING else signature.return_annotation)
        result_schema = result.json_schema(mode="serialization", schema_generator=_QuietSchema)
        params_schema = params.model_json_schema(schema_generator=_QuietSchema)
    except (PydanticUserError, SchemaError, NameError, TypeError, ValueError, AttributeError) as error:
        raise InvalidKind(f"its annotations cannot become a schema: {str(error).splitlines()[0]}") from error
    reads = [(parameter, fields.get(parameter.name, _read_attempt)) for parameter in parameters]
    reads = [(parameter, read) for parameter, read in reads if parameter.kind is not Parameter.VAR_KEYWORD]
    return Signature(
        params_schema=params_schema,
        result_schema=None if signature.return_annotation in _RETURNS_NOTHING else result_schema,
        params=params,
        result=result,
        positional=tuple(read for parameter, read in reads if parameter.kind is not Parameter.KEYWORD_ONLY),
        named=tuple((parameter.name, read) for parameter, read in reads if parameter.kind is Parameter.KEYWORD_ONLY),
        takes_any_name=any(parameter.kind is Parameter.VAR_KEYWORD for parameter in by_params),
        has_no_parameters=not parameters,
        reserved=frozenset(parameter.name for parameter in parameters if _is_attempt(parameter)),
    )


class _QuietSchema(GenerateJsonSchema):
    """Omits defaults that are not JSON without a warning, since a function may have any default."""

    ignored_warning_kinds: set[JsonSchemaWarningKind] = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012


def _resolved(function: Callable[..., Any]) -> inspect.Signature:
    try:
        signature = inspect.signature(function, eval_str=True)
    except NameError as error:
        raise InvalidKind(
            f'its annotations cannot be read: {error}; import it outside of "if TYPE_CHECKING"'
        ) from error
    except (AttributeError, SyntaxError, TypeError, ValueError) as error:
        raise InvalidKind(f"its annotations cannot be read: {error}") from error
    for parameter in signature.parameters.values():
        if parameter.kind is Parameter.VAR_POSITIONAL:
            raise InvalidKind(f"params, which have names, cannot fill *{parameter.name}: name each parameter")
        if isinstance(parameter.default, FieldInfo):
            raise InvalidKind(f"the default of {parameter.name} is a Field: write Annotated[type, Field(…)] = default")
    return signature


def _is_attempt(parameter: Parameter) -> bool:
    return parameter.annotation is Attempt or Attempt in get_args(parameter.annotation)


def _is_model(parameter: Parameter) -> bool:
    annotation = parameter.annotation
    is_one = parameter.kind is not Parameter.VAR_KEYWORD
    return is_one and isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _model_of(function: Callable[..., Any], parameters: list[Parameter]) -> tuple[type[BaseModel], dict[str, Read]]:
    """Make a model from parameters. Its field names are numbered, since parameters may clash with pydantic's names."""
    fields: dict[str, Any] = {}
    reads: dict[str, Read] = {}
    is_open = False
    for number, parameter in enumerate(parameters):
        if parameter.kind is Parameter.VAR_KEYWORD:
            is_open = True
            continue
        annotation = Any if parameter.annotation is Parameter.empty else parameter.annotation
        default = ... if parameter.default is Parameter.empty else parameter.default
        fields[f"p{number}"] = (annotation, Field(default, alias=parameter.name))
        reads[parameter.name] = _reader(f"p{number}")
    name = getattr(function, "__name__", "params")
    config = ConfigDict(extra="allow" if is_open else "forbid", title=name)
    return create_model(name, __config__=config, **fields), reads


def _reader(field: str) -> Read:
    read = attrgetter(field)
    return lambda values, _: read(values)


def _read_whole(values: BaseModel, _: Attempt) -> BaseModel:
    return values


def _read_attempt(_: BaseModel, attempt: Attempt) -> Attempt:
    return attempt


def _not_json(what: str) -> AttemptFailed:
    return AttemptFailed("exception", f"the function returned {what}", retryable=False)
