"""Documents in the embedded database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from erelong.model.document import Document
from erelong.stores.sqlite import statements as sql

if TYPE_CHECKING:
    from collections.abc import Sequence

    import apsw


def write_documents(connection: apsw.Connection, documents: Sequence[Document]) -> None:
    for document in documents:
        if document.text is None:
            connection.execute(sql.DROP_DOCUMENT, (document.sort, document.name))
        else:
            connection.execute(sql.SET_DOCUMENT, document)


def read_document(connection: apsw.Connection, sort: str, name: str) -> Document | None:
    row: Any = connection.execute(sql.SELECT_DOCUMENT, (sort, name)).fetchone()
    return None if row is None else Document._make(row)


def read_documents(connection: apsw.Connection, sort: str, after: str, limit: int) -> list[Document]:
    return [Document._make(row) for row in connection.execute(sql.SELECT_DOCUMENTS, (sort, after, limit))]
