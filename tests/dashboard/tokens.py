"""The tokens of JavaScript, read one character after another: a second way to find where its literals end."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

SPACE = re.compile(r"(?:\s|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
WORD = re.compile(r"[\w$#]+|\.\.\.")
STRING = re.compile(r'"(?:[^"\\]|\\.)*"|' + r"'(?:[^'\\]|\\.)*'", re.DOTALL)
PATTERN = re.compile(r"/(?:\[(?:\\.|[^\]\\])*\]|\\.|[^/\\\[])+/\w*")
OPENING = frozenset("([{")
CLOSING = frozenset(")]}")
VALUES_FOLLOW = frozenset({"return", "typeof", "case", "in", "of", "await", "yield"})


class Token(NamedTuple):
    text: str
    begins_line: bool
    """Whether a line break precedes it, which may end a statement."""


def tokens(text: str) -> Iterator[Token]:
    """Yield the tokens of a script or module."""
    place, last, begins_line = 0, "", True
    while True:
        space = SPACE.match(text, place)
        assert space is not None
        begins_line |= "\n" in space[0]
        place = space.end()
        if place == len(text):
            return
        end = _end_of(text, place, last)
        last = text[place:end]
        yield Token(last, begins_line)
        place, begins_line = end, False


def without_modules(found: Iterator[Token]) -> Iterator[Token]:
    """Yield the tokens of a module without its imports and the word `export`."""
    for token in found:
        if token.text == "import":
            while next(found).text != ";":
                pass
        elif token.text == "export":
            yield next(found)._replace(begins_line=token.begins_line)
        else:
            yield token


def shortest(found: Iterator[Token]) -> Iterator[Token]:
    """Yield tokens without the commas and semicolons that a bracket or a line break replaces, and without the line
    breaks beside brackets.
    """
    last, before = next(found), ""
    for token in found:
        is_needless = last.text == ";" and token.begins_line and WORD.match(token.text)
        if not (is_needless or (last.text in (",", ";") and token.text in CLOSING)):
            yield last._replace(begins_line=last.begins_line and not (before in OPENING or last.text in CLOSING))
            before = last.text
        last = token
    yield last


def renamed(found: list[Token], names: Mapping[str, str]) -> Iterator[Token]:
    """Yield tokens with other names, also in the expressions of templates."""
    before = ""
    for token in found:
        text = token.text
        if text.startswith("`"):
            for insert in inserts_of(text):
                text = text.replace(insert, re.sub(r"(?<![.\w])\w+", lambda word: names.get(word[0], word[0]), insert))
        elif before != ".":
            text = names.get(text, text)
        yield token._replace(text=text)
        before = token.text


def _end_of(text: str, place: int, last: str) -> int:
    """Return the end of the token that begins here, after `last`."""
    first = text[place]
    if first == "`":
        return _end_of_template(text, place)
    is_value = not last or last in VALUES_FOLLOW or not (last[-1] in ")]}\"'`" or WORD.match(last[-1]))
    kinds = [STRING, WORD, *([PATTERN] if is_value else [])]
    found = next((match for kind in kinds if (match := kind.match(text, place))), None)
    return found.end() if found else place + 1


def _end_of_template(text: str, place: int) -> int:
    *_, (_, end) = [(0, place + 1), *_inserts(text, place)]
    while text[end] != "`":
        end += 2 if text[end] == "\\" else 1
    return end + 1


def inserts_of(template: str) -> list[str]:
    """Return the expressions in a template."""
    return [template[start : end - 1] for start, end in _inserts(template, 0)]


def _inserts(text: str, place: int) -> Iterator[tuple[int, int]]:
    """Yield where each expression of a template begins, and where its closing brace ends."""
    place += 1
    while text[place] != "`":
        if text.startswith("${", place):
            start = place + 2
            place = _end_of_insert(text, start)
            yield start, place
        else:
            place += 2 if text[place] == "\\" else 1


def _end_of_insert(text: str, place: int) -> int:
    depth, last = 1, ""
    while depth:
        space = SPACE.match(text, place)
        assert space is not None
        place = space.end()
        end = _end_of(text, place, last)
        last = text[place:end]
        depth += (last == "{") - (last == "}")
        place = end
    return place
