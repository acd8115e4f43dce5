"""Typed kinds: functions whose arguments become the params of jobs, and params their arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, Unpack, get_args, overload

from erelong.attempt import Attempt
from erelong.client.drafts import Draft, Options
from erelong.client.values import load, plain

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
C_co = TypeVar("C_co", covariant=True)


@dataclass(eq=False)
class Kind(Generic[P, R_co, C_co]):
    """A function that runs as jobs of a kind. Calling it runs the function here; `job` makes a draft instead.

    The params of the job have the names of the parameters. A parameter annotated `Attempt` receives the attempt. A
    function whose only other parameter is a pydantic model receives the params as that model.
    """

    name: str
    function: Callable[..., Any]
    options: Options

    @property
    def erelong_function(self) -> Callable[..., Any]:
        """The function that a service runs whose settings name this kind."""
        return self.function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> C_co:
        result: C_co = self.function(*args, **kwargs)
        return result

    def job(self, *args: P.args, **kwargs: P.kwargs) -> Draft[R_co]:
        """Return a draft whose params are these arguments. Raise TypeError if the function does not take them."""
        bound = self.parameters.bind(*args, **kwargs)
        if self.whole is not None:
            given = bound.arguments.get(self.whole.name, self.whole.default)
            return Draft(self.name, plain(given), returns=self.returns, **self.options)
        params: dict[str, Any] = {}
        for name, value in bound.arguments.items():
            if self.parameters.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
                params |= value
            else:
                params[name] = value
        return Draft(self.name, params, returns=self.returns, **self.options)

    @cached_property
    def signature(self) -> inspect.Signature:
        try:
            signature = inspect.signature(self.function, eval_str=True)
        except NameError as error:
            remedy = 'define it in the module, and import it outside of "if TYPE_CHECKING"'
            raise TypeError(f"the annotations of {self.name} cannot be read: {error}; {remedy}") from None
        for parameter in signature.parameters.values():
            if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
                raise TypeError(f"{self.name}: params, which have names, cannot fill *{parameter.name}")
        return signature

    @cached_property
    def returns(self) -> Any:
        """The type of a result, for `values.load`."""
        annotation = self.signature.return_annotation
        return Any if annotation in (inspect.Signature.empty, None) else annotation

    @property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.function)

    def arguments(self, params: Mapping[str, Any], attempt: Attempt) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments of a call from the params of a job. Raise TypeError if they do not fit."""
        positional: list[Any] = []
        named: dict[str, Any] = {}
        left = dict(params) if self.whole is None else {self.whole.name: params}
        missing: list[str] = []
        for name, parameter in self.signature.parameters.items():
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                named |= left
                left = {}
                continue
            if _is_attempt(parameter):
                value: Any = attempt
            elif name in left:
                value = load(parameter.annotation, left.pop(name))
            elif parameter.default is inspect.Parameter.empty:
                missing.append(name)
                continue
            else:
                value = parameter.default
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
                named[name] = value
            else:
                positional.append(value)
        if missing or left:
            faults = [*(f"{name} is missing" for name in missing), *(f"{name} is unknown" for name in left)]
            raise TypeError(f"the params do not fit {self.name}{self.signature}: {', '.join(faults)}")
        return positional, named

    @cached_property
    def parameters(self) -> inspect.Signature:
        """The signature without the attempt."""
        kept = [parameter for parameter in self.signature.parameters.values() if not _is_attempt(parameter)]
        return self.signature.replace(parameters=kept)

    @cached_property
    def whole(self) -> inspect.Parameter | None:
        """The parameter that receives all params as one pydantic model: the only one, as in a service."""
        only = [*self.parameters.parameters.values()]
        is_model = len(only) == 1 and hasattr(only[0].annotation, "model_validate")
        return only[0] if is_model and only[0].kind is not inspect.Parameter.VAR_KEYWORD else None


def _is_attempt(parameter: inspect.Parameter) -> bool:
    return parameter.annotation is Attempt or Attempt in get_args(parameter.annotation)


class KindDecorator:
    """Makes a kind of a function."""

    written = "kind"

    def __init__(self, name: str, options: Options) -> None:
        if not isinstance(name, str):  # the decorator was written without parentheses
            raise TypeError(f'the kind has no name: write @{self.written}("{getattr(name, "__name__", "name")}")')
        self.name = name
        self.options = options

    @overload
    def __call__(
        self, function: Callable[Concatenate[Attempt, P], Coroutine[Any, Any, R]]
    ) -> Kind[P, R, Coroutine[Any, Any, R]]: ...

    @overload
    def __call__(self, function: Callable[Concatenate[Attempt, P], R]) -> Kind[P, R, R]: ...

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]]) -> Kind[P, R, Coroutine[Any, Any, R]]: ...

    @overload
    def __call__(self, function: Callable[P, R]) -> Kind[P, R, R]: ...

    def __call__(self, function: Callable[..., Any]) -> Kind[..., Any, Any]:
        return self.make(function)

    def make(self, function: Callable[..., Any]) -> Kind[..., Any, Any]:
        return Kind(self.name, function, self.options)


def kind(name: str, **options: Unpack[Options]) -> KindDecorator:
    """Return a decorator that makes a kind of a function, with default options for its jobs.

    Take the attempt, if at all, as the first parameter: type checkers then know that callers do not pass it.
    """
    return KindDecorator(name, options)
