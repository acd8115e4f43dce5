"""Documents in the embedded database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from erelong.model.document import Document, must_follow
from erelong.stores.sqlite import statements as sql

if TYPE_CHECKING:
    from collections.abc import Sequence

    import apsw


def check_documents(connection: apsw.Connection, documents: Sequence[Document]) -> None:
    """Raise `DocumentChanged` unless each is the next version of the stored one."""
    stored: dict[tuple[str, str], Document] = {}
    for sort in {document.sort for document in documents}:
        names = orjson.dumps([document.name for document in documents if document.sort == sort]).decode()
        for name, version in connection.execute(sql.SELECT_DOCUMENT_VERSIONS, (names, sort)):
            stored[sort, name] = Document(sort, name, version, 0, None)
    must_follow(documents, lambda sort, name: stored.get((sort, name)))


def write_documents(connection: apsw.Connection, documents: Sequence[Document]) -> None:
    if all(document.text is not None for document in documents):
        connection.executemany(sql.SET_DOCUMENT, documents)
        return
    for document in documents:
        if document.text is None:
            connection.execute(sql.DROP_DOCUMENT, (document.sort, document.name))
        else:
            connection.execute(sql.SET_DOCUMENT, document)


def read_document(connection: apsw.Connection, sort: str, name: str) -> Document | None:
    row: Any = connection.execute(sql.SELECT_DOCUMENT, (sort, name)).fetchone()
    return None if row is None else Document._make(row)


def read_named(connection: apsw.Connection, sort: str, names: Sequence[str]) -> list[Document]:
    text = orjson.dumps(names).decode()
    return [Document._make(row) for row in connection.execute(sql.SELECT_NAMED_DOCUMENTS, (text, sort))]


def read_documents(connection: apsw.Connection, sort: str, after: str, limit: int) -> list[Document]:
    return [Document._make(row) for row in connection.execute(sql.SELECT_DOCUMENTS, (sort, after, limit))]
