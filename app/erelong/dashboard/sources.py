"""Builds the files that browsers load: one script of all modules, and the style sheet, almost without comments.

All modules share one scope, so their top-level names must differ and imports cannot be renamed. Insignificant spaces go
too, and constants in capitals get short names. Line breaks between statements and the names of functions stay, so that
stack traces are readable.
"""

from __future__ import annotations

import re
from itertools import product
from string import ascii_letters
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

STRING: Final = r"""(?:"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')"""
TEMPLATE: Final = r"`(?:[^`\\$]|\\.|\$(?!\{)|\$\{(?:[^`{}]|`[^`]*`|\{[^{}]*\})*\})*`"
REGEX: Final = r"/(?![ /*])(?:[^/\\\[\n]|\\.|\[(?:[^\]\\\n]|\\.)*\])+/"  # a division has spaces around it
SPACE: Final = r"(?:\s|/\*(?>.*?\*/)|//[^\n]*)*"
SIGN: Final = r"[(){}\[\],;:=?<>&|!]"

IMPORT: Final = re.compile(r'^import \{([^{}]*)\} from "\./([\w.]+)";\n', re.MULTILINE)
DECLARED: Final = re.compile(r"^(export )?(?:const|let|class|(?:async )?function\*?) (\w+)", re.MULTILINE)
MODULAR: Final = re.compile(r"^(?:import|export)\b.*|\bimport\(.*", re.MULTILINE)
LITERAL: Final = rf"{STRING}|{TEMPLATE}|{REGEX}"
CODE: Final = re.compile(
    rf"({LITERAL})|[;,]?{SPACE}\n{SPACE}(?=[)\]}}])|(?<=[(\[{{]){SPACE}\n{SPACE}|;?{SPACE}(\n){SPACE}(?=\w)"
    rf"|{SPACE}(\n){SPACE}|(?<=[\w)\]}}\"'`]) ([-+*%]) (?=[\w(\[\"'`])|(?<={SIGN}) +| +(?={SIGN})",
    re.DOTALL,
)
COMMENT: Final = re.compile(rf"({STRING})|/\*.*?\*/", re.DOTALL)
SHEET: Final = re.compile(rf"({STRING})|;\s*(?=\}})|\s*([{{}},>;])\s*|(:)\s+|(\s)\s*")


def join_modules(modules: Mapping[str, str], main: str) -> str:
    """Return a script that does the same as the module `main` with all that it imports.

    Raise ValueError if the modules cannot share a scope.
    """
    texts = []
    homes: dict[str, str] = {}
    for module in in_order(modules, main):
        text = modules[module]
        for _, name in DECLARED.findall(text):
            if name in homes:
                raise ValueError(f"{module} and {homes[name]} both declare {name}: rename one")
            homes[name] = module
        _check_imports(modules, module)
        texts.append(_statements_of(module, text))
    return _shorten("".join(texts), [name for name in homes if name.isupper()])


def in_order(modules: Mapping[str, str], main: str) -> list[str]:
    """Return the names of the modules in the order in which a browser evaluates them."""
    ordered: list[str] = []

    def add(module: str, importers: tuple[str, ...]) -> None:
        if module in importers:
            raise ValueError(f"modules import each other: {' → '.join([*importers, module])}")
        if module not in ordered:
            for _, other in IMPORT.findall(modules[module]):
                if other not in modules:
                    raise ValueError(f"{module} imports {other}, which does not exist")
                add(other, (*importers, module))
            ordered.append(module)

    add(main, ())
    return ordered


def _check_imports(modules: Mapping[str, str], module: str) -> None:
    for names, other in IMPORT.findall(modules[module]):
        exported = {name for export, name in DECLARED.findall(modules[other]) if export}
        for name in filter(None, (name.strip() for name in names.split(","))):
            if name not in exported:
                raise ValueError(f"{module} imports {name!r}, which {other} does not export")


def _statements_of(module: str, text: str) -> str:
    """Return a module without its imports and comments, the word `export`, and insignificant spaces."""
    text = DECLARED.sub(lambda found: found[0].removeprefix("export "), IMPORT.sub("", text))
    if found := MODULAR.search(text):
        raise ValueError(f"{module}: cannot join {found[0]!r}: import names in braces and export declarations only")
    text = CODE.sub(r"\1\2\3\4", text).strip()
    if not text.endswith((";", "}")):
        raise ValueError(f"{module} must end with ; or }}, since the next module follows")
    return f"{text}\n"


def _shorten(script: str, constants: Sequence[str]) -> str:
    """Return a script with `let` for `const`, in which these constants have short names. Functions keep theirs: stack
    traces show them.
    """
    some = "|".join(["const", *constants])
    if found := re.search(rf"[{{,](?:{some}):|(?:,|(?<!\$)\{{)(?:{some})\}}|(?<!\$)\{{(?:{some}),", script):
        raise ValueError(f"constants get other names, so they cannot be keys: write {found[0]!r} in another way")
    used = {*re.findall(r"\w+", script)}
    free = (name for size in (1, 2) for letters in product(ascii_letters, repeat=size) if (name := "".join(letters)))
    names = {"const": "let", **dict(zip(constants, (name for name in free if name not in used), strict=False))}
    constant = re.compile(rf"(?:(?<![.\w])|(?<=\.\.\.))(?:{some})\b")

    def renamed(found: re.Match[str]) -> str:
        literal: str = found[1]
        return literal if literal and literal[0] != "`" else constant.sub(lambda word: names[word[0]], found[0])

    return re.sub(rf"({LITERAL})|{constant.pattern}", renamed, script, flags=re.DOTALL)


def strip_style(text: str) -> str:
    """Return a style sheet without its comments and insignificant spaces."""
    bare = COMMENT.sub(lambda found: found[1] or " ", text)
    return SHEET.sub(r"\1\2\3\4", bare).strip()
