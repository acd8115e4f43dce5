"""Many drafts at once: their batches, their tickets, and which of a refused batch are bad. Without I/O."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from erelong.client.errors import Conflict, Forbidden, Invalid, Refused, refused_by
from erelong.client.records import Field, Record
from erelong.client.values import dump

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from erelong.client.drafts import Draft

MAX_BYTES: Final = 4 << 20
_POINTER: Final = re.compile(r"/jobs/(\d+)(.*)", re.DOTALL)

Line = tuple[int, bytes]
"""The index of a draft and its body."""


class Ticket(Record):
    """What became of one draft of `submit_many`: a stored job, or the `problem` why there is none."""

    __slots__ = ("index", "problem")

    created = Field[bool](False)

    def __init__(self, index: int, raw: Mapping[str, Any], problem: Refused | None = None) -> None:
        super().__init__(raw)
        self.index = index
        self.problem = problem

    def __repr__(self) -> str:
        return f"Ticket({self.index}, {self.raw.get('id') if self.problem is None else self.problem!r})"

    @property
    def id(self) -> str:
        """The id of the job; raises the problem if there is none."""
        if self.problem is not None:
            raise self.problem
        id: str = self.raw["id"]
        return id


class Unsent:
    """Warns when it is dropped before `begin`: a generator of a submit over which nobody has iterated sends nothing."""

    has_begun = False

    def begin(self) -> None:
        self.has_begun = True

    def __del__(self) -> None:
        if not self.has_begun:
            remedy = "iterate over it, for example with list(…)"
            warnings.warn(f"submit_many has submitted nothing: {remedy}", RuntimeWarning, stacklevel=2)


def batches_of(drafts: Iterable[Draft[Any]], size: int) -> Iterator[list[Line]]:
    """Return the bodies of drafts in batches of at most `size` jobs and 4 MiB."""
    batch: list[Line] = []
    length = 0
    for index, draft in enumerate(drafts):
        body = dump(draft.body())
        if batch and (len(batch) == size or length + len(body) > MAX_BYTES):
            yield batch
            batch, length = [], 0
        batch.append((index, body))
        length += len(body) + 1
    if batch:
        yield batch


def tickets_of(batch: list[Line], answer: Mapping[str, Any]) -> list[Ticket]:
    return [Ticket(index, raw) for (index, _), raw in zip(batch, answer["jobs"], strict=True)]


def without_bad(batch: list[Line], problem: Refused) -> tuple[list[Line], list[Ticket]]:
    """Return the rest of a refused batch, and a ticket for each draft that the problem names. Raise others.

    A draft that conflicts with one that is not stored now may be stored with the rest: that is tried.
    """
    if not isinstance(problem, Invalid | Conflict | Forbidden):
        raise problem
    faults = bad_positions(problem)
    if not faults:
        raise problem
    tickets = []
    for position, errors in faults.items():
        index, _ = batch[position]
        about = {**problem.problem, "errors": errors, "detail": "the job was not stored"}
        about.pop("job", None)
        tickets.append(Ticket(index, {}, refused_by(problem.status, about)))
    return [line for position, line in enumerate(batch) if position not in faults], tickets


def bad_positions(problem: Refused) -> dict[int, list[dict[str, str]]]:
    """Return the faults of each job that a problem names by its position; none if it is about anything else."""
    faults: dict[int, list[dict[str, str]]] = {}
    for error in problem.errors:
        if (match := _POINTER.fullmatch(error.get("pointer", ""))) is None:
            return {}
        faults.setdefault(int(match[1]), []).append({**error, "pointer": match[2]})
    return faults
