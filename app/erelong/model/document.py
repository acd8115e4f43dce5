"""A named text stored beside jobs, such as a schedule. Each change increments its version."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from erelong.errors import DocumentChanged

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from erelong.clock.instants import Instant


class Document(NamedTuple):
    """One version of a document. Its name is unique within its sort."""

    sort: str
    name: str
    version: int
    """One more than the version it replaces; 1 for a new document."""
    changed_at: Instant
    text: bytes | None
    """JSON; None deletes the document."""


def must_follow(documents: Sequence[Document], read: Callable[[str, str], Document | None]) -> None:
    """Raise `DocumentChanged` unless each is the next version of the stored one, or of an earlier one of this call."""
    latest: dict[tuple[str, str], Document | None] = {}
    for document in documents:
        name = (document.sort, document.name)
        _must_succeed(document, latest[name] if name in latest else read(*name))
        latest[name] = None if document.text is None else document


def _must_succeed(document: Document, before: Document | None) -> None:
    version = 0 if before is None else before.version
    if document.version != version + 1:
        state = "does not exist" if before is None else f"has version {version}"
        raise DocumentChanged(f"{document.sort} {document.name} {state}, not {document.version - 1}; read it again")
