"""Arrays in PostgreSQL's binary format. Packing them here takes a tenth of the time of the driver's own adaptation."""

from __future__ import annotations

from struct import Struct, pack
from typing import TYPE_CHECKING, Any

from psycopg.adapt import Dumper
from psycopg.pq import Format
from psycopg.types.numeric import Int8BinaryDumper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from psycopg import Connection

_NULL = b"\xff\xff\xff\xff"
_LENGTH = Struct(">i").pack
_BYTES = {length: _LENGTH(length) for length in range(256)}


class Array(bytes):
    """A packed array; its subclasses tell the driver the type of the elements."""

    __slots__ = ()


class Bigints(Array):
    """A `bigint[]`."""

    __slots__ = ()


class Ints(Array):
    """An `int[]`."""

    __slots__ = ()


class Floats(Array):
    """A `float8[]`."""

    __slots__ = ()


class Texts(Array):
    """A `text[]`."""

    __slots__ = ()


class Blobs(Array):
    """A `bytea[]`."""

    __slots__ = ()


def bigints(values: Iterable[int | None]) -> Bigints:
    return Bigints(_numbers([*values], 20, "q", 8))


def ints(values: Iterable[int | None]) -> Ints:
    return Ints(_numbers([*values], 23, "i", 4))


def floats(values: Iterable[float | None]) -> Floats:
    return Floats(_numbers([*values], 701, "d", 8))


def texts(values: Iterable[str | None]) -> Texts:
    return Texts(_strings([None if value is None else value.encode() for value in values], 25))


def blobs(values: Iterable[bytes | None]) -> Blobs:
    return Blobs(_strings([*values], 17))


def _numbers(values: Sequence[float | None], element: int, code: str, size: int) -> bytes:
    if not values:
        return _head(0, element)
    if None in values:
        one, length = Struct(f">{code}").pack, _LENGTH(size)
        return _head(len(values), element) + b"".join(
            [_NULL if value is None else length + one(value) for value in values]
        )
    parts: list[Any] = [size] * (2 * len(values))
    parts[1::2] = values
    return _head(len(values), element) + pack(">" + f"i{code}" * len(values), *parts)


def _strings(values: Sequence[bytes | None], element: int) -> bytes:
    parts = [_head(len(values), element)]
    for value in values:
        if value is None:
            parts.append(_NULL)
        else:
            length = len(value)
            parts.append(_BYTES.get(length) or _LENGTH(length))
            parts.append(value)
    return b"".join(parts)


def _head(length: int, element: int) -> bytes:
    """Return the head of an array with one dimension, which may have nulls; an empty one has no dimension."""
    return pack(">5i", 1, 1, element, length, 1) if length else pack(">3i", 0, 0, element)


class _Packed(Dumper):
    """Passes packed arrays on."""

    format = Format.BINARY

    def dump(self, obj: Any) -> bytes:
        packed: bytes = obj
        return packed


def _dumper(array: int) -> type[Dumper]:
    return type("Packed", (_Packed,), {"oid": array})


_DUMPERS = {Bigints: 1016, Ints: 1007, Floats: 1022, Texts: 1009, Blobs: 1001}


def register_arrays(connection: Connection[Any]) -> None:
    """Make a connection take packed arrays, and every number as a `bigint`, so that statements stay prepared."""
    for kind, array in _DUMPERS.items():
        connection.adapters.register_dumper(kind, _dumper(array))
    connection.adapters.register_dumper(int, Int8BinaryDumper)


PACKERS: dict[str, Callable[[Iterable[Any]], Array]] = {
    "bigint": bigints,
    "int": ints,
    "float8": floats,
    "text": texts,
    "bytea": blobs,
}
"""The function for each type of a column."""
