"""The script made of the modules: what becomes of them, and the rules that let them share one scope."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from erelong.dashboard.face import MAIN, STATIC, read_files
from erelong.dashboard.sources import DECLARED, IMPORT, in_order, join_modules, strip_style
from tests.dashboard.tokens import inserts_of, renamed, shortest, tokens, without_modules

MODULES = {path.name: path.read_text(encoding="utf-8") for path in sorted(STATIC.glob("*.js"))}
TEXT = r"""/** Words. */

export const WORDS = ["a; // b", "/* no */ c , \" d", '"', ")"]; // of some sort
const hidden = 1;

/**
 * Return a word.
 * @param {number} index
 */
export async function* wordOf(index, /* of two */ isLast) {
  if (isLast && /[/"`] , \/ "/.test(index)) return index / 2 / 3 + 1; // in the middle

  yield `/** "no" */ , // ${WORDS[index] || `, ${isLast ? "a , b" : { }}`} , ${index}
    // no comment`;
}

/** A comment after one within a line. */
const last = [0 /* none */, 1];
"""
MAIN_TEXT = """/** Says a word. */

import { other } from "./other.js";
import {
  WORDS, wordOf,
} from "./text.js";

class Speaker {
  #last = -other; // to be said

  /** Speak. */
  say = (index) => wordOf(index - -this.#last, typeof WORDS !== "string");
}
"""
OTHER = 'import { WORDS } from "./text.js";\nexport let other = WORDS.length;\n'
JOINED = r"""let e=["a; // b","/* no */ c , \" d",'"',")"]
let hidden=1
async function* wordOf(index,/* of two */ isLast){if(isLast&&/[/"`] , \/ "/.test(index))return index / 2 / 3+1
yield `/** "no" */ , // ${e[index] || `, ${isLast ? "a , b" : { }}`} , ${index}
    // no comment`}
let last=[0 /* none */,1];
let other=e.length;
class Speaker{#last=-other
say=(index)=>wordOf(index - -this.#last,typeof e!=="string")}
"""
WRONG = {
    'const WORDS = ["b"];\n': "main.js and text.js both declare WORDS: rename one",
    'import { WORDS as words } from "./text.js";\n': "main.js imports 'WORDS as words', which text.js does not export",
    'import { nothing } from "./text.js";\n': "main.js imports 'nothing', which text.js does not export",
    'import { hidden } from "./text.js";\n': "main.js imports 'hidden', which text.js does not export",
    'import { nothing } from "./nothing.js";\n': "main.js imports nothing.js, which does not exist",
    'import { main } from "./main.js";\n': "modules import each other: main.js → main.js",
    'import * as text from "./text.js";\n': "main.js: cannot join 'import *",
    'import text from "./text.js";\n': "main.js: cannot join 'import text",
    "export { wordOf };\n": "main.js: cannot join 'export { wordOf };'",
    "export default 1;\n": "main.js: cannot join 'export default 1;'",
    'const later = () => import("./text.js");\n': "main.js: cannot join 'import(",
    "const open = (1)\n": "main.js must end with ; or }",
}
STYLE = """/* Calm. */

:root { --ground: light-dark(#fff, #000); }
.a > b:hover, .c :is(d, e)
{
  width: calc(100% - 2px); content: ": a, {b}; ";  /* kept */
}
@media (max-width: 1px) { .a/* or */ b { color: red; margin: 1px/* top */ 2px; } }
"""
STRIPPED = (
    ":root{--ground:light-dark(#fff,#000)}"
    '.a>b:hover,.c :is(d,e){width:calc(100% - 2px);content:": a, {b}; "}'
    "@media (max-width:1px){.a b{color:red;margin:1px 2px}}"
)


def test_modules_become_one_script_in_the_order_of_their_imports() -> None:
    assert join_modules({"main.js": MAIN_TEXT, "other.js": OTHER, "text.js": TEXT}, "main.js") == JOINED


@pytest.mark.parametrize("line", WRONG)
def test_module_that_cannot_share_a_scope_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match=re.escape(WRONG[line])):
        join_modules({"main.js": MAIN_TEXT + line, "other.js": OTHER, "text.js": TEXT}, "main.js")


def test_modules_that_import_each_other_are_refused() -> None:
    modules = {"a.js": 'import { b } from "./b.js";\n', "b.js": 'import { a } from "./a.js";\n'}

    with pytest.raises(ValueError, match=re.escape("modules import each other: a.js → b.js → a.js")):
        join_modules(modules, "a.js")


def test_style_sheet_keeps_its_words_and_loses_its_spaces() -> None:
    assert strip_style(STYLE) == STRIPPED


def test_script_has_all_modules_in_short_lines() -> None:
    script = read_files().others["ui.js"].plain.decode()

    assert {*in_order(MODULES, MAIN)} == {*MODULES}
    assert max(map(len, script.splitlines())) <= 240


def test_style_sheet_has_all_that_its_source_has() -> None:
    source = re.sub(r"/\*.*?\*/", "", (STATIC / "ui.css").read_text(encoding="utf-8"), flags=re.DOTALL)
    served = read_files().others["ui.css"].plain.decode()

    assert "".join(served.split()) == re.sub(r";\}", "}", "".join(source.split()))


def test_script_has_the_tokens_of_all_modules() -> None:
    """Nothing but comments, spaces, signs that a bracket or a line break replaces, imports and the word `export` is
    missing, and every line break that may count. Constants have other names, and `let` stands for `const`.
    """
    script = [*shortest(tokens(read_files().others["ui.js"].plain.decode()))]

    modules = (token for module in in_order(MODULES, MAIN) for token in without_modules(tokens(MODULES[module])))
    sources = [*shortest(modules)]
    names = {
        old.text: new.text
        for before, old, new in zip(sources, sources[1:], script[1:], strict=False)
        if before.text == "const" and old.text.isupper()
    }
    names["const"] = "let"
    assert len(script) > 30_000
    assert len({*names.values()}) == len(names) > 50
    assert {*names.values()} & {token.text for token in sources} == {"let"}
    assert script == [*renamed(sources, names)]


def test_constant_that_is_a_key_is_refused() -> None:
    for use in ("{ WORD }", "{ a, WORD }", "{ WORD, a }", "{ WORD: 1 }", "{ a, WORD: 1 }"):
        with pytest.raises(ValueError, match="cannot be keys"):
            join_modules({"main.js": f"const WORD = 1;\nconst a = {use};"}, "main.js")


def test_constant_is_renamed_where_it_is_spread_and_not_where_it_is_a_property() -> None:
    text = 'const WORD = [];\nconst a = [...WORD, a.WORD, "WORD", `${WORD}`, /WORD/];'

    assert join_modules({"main.js": text}, "main.js") == 'let b=[]\nlet a=[...b,a.WORD,"WORD",`${b}`,/WORD/];\n'


def test_tokens_show_a_literal_that_changed() -> None:
    line = "words = text.split(/ , /);"  # taken for divisions

    assert [*tokens(join_modules({"main.js": line}, "main.js"))] != [*tokens(line)]


@pytest.mark.parametrize("module", MODULES)
def test_declaration_has_one_name(module: str) -> None:
    """The names of `const { a, b } = …` and `let a, b` would not be compared with those of other modules."""
    declared = re.findall(r"^(?:export )?(?:const|let|var)\b.*", MODULES[module], re.MULTILINE)

    assert [line for line in declared if not re.match(r"(export )?(const|let) \w+ = ", line)] == []


@pytest.mark.parametrize("module", MODULES)
def test_module_imports_what_it_uses(module: str) -> None:
    """In the script, a module finds the names of all others: no browser misses an import.

    Not found is a missing import whose name is also that of a parameter in the module.
    """
    text = IMPORT.sub("", MODULES[module])
    imported = {name for names, _ in IMPORT.findall(MODULES[module]) for name in re.findall(r"\w+", names)}
    others = {name for other in MODULES if other != module for _, name in DECLARED.findall(MODULES[other])}

    assert ({*used_names(text)} - {*own_names(text)}) & others <= imported
    assert imported <= {*used_names(text)}


def used_names(text: str) -> Iterator[str]:
    """Yield the words of a module that are neither properties nor keys of an object."""
    found = [token.text for token in tokens(text)]
    for before, word, after in zip(["", *found], found, [*found[1:], ""], strict=False):
        if word.startswith("`"):
            for insert in inserts_of(word):
                yield from used_names(insert)
        elif before != "." and (after != ":" or before not in ("{", ",")) and (word != "get" or after == "("):
            yield word


def own_names(text: str) -> Iterator[str]:
    """Yield the names that a module declares, also as parameters and inside of functions."""
    yield from re.findall(r"\b(?:const|let|function\*?|class) (\w+)", text)
    yield from re.findall(r"^ +(?:async )?(\w+)\(.*\) \{$", text, re.MULTILINE)  # methods
    yield from re.findall(r"\w+", " ".join(re.findall(r"const \{(.*)\} =", text)))
    for parameters in re.findall(r"\(([^()]*)\) (?:=>|\{)|\{([^{}]*)\} =|\[([^\[\]]*)\] =", text):
        yield from re.findall(r"\w+", " ".join(parameters))
