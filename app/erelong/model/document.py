"""A named text stored beside jobs, such as a schedule. Each change increments its version."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from erelong.errors import DocumentChanged

if TYPE_CHECKING:
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


def must_succeed(document: Document, stored: Document | None) -> None:
    """Raise `DocumentChanged` unless the document is the next version of the stored one."""
    version = 0 if stored is None else stored.version
    if document.version != version + 1:
        state = "does not exist" if stored is None else f"has version {version}"
        raise DocumentChanged(f"{document.sort} {document.name} {state}, not {document.version - 1}; read it again")
