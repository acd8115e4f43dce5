"""The OpenAPI 3.1 document, made from the routes and models that serve."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from app.api.app import Route
    from app.handlers.base import Handler


def document(routes: Sequence[Route], handlers: Mapping[str, Handler]) -> dict[str, Any]:
    raise NotImplementedError
