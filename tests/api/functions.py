"""Functions that tests declare as kinds."""

from __future__ import annotations

from pydantic import BaseModel


class Tree(BaseModel):
    name: str
    children: list[Tree]


async def grow(tree: Tree) -> str:
    return tree.name
