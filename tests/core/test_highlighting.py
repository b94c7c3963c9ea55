"""Highlighting of programs, by Pygments and by a TextMate grammar, on all story files."""

import json
import re
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from pygments.token import Error

from shardir.text.highlighting import GRAMMAR_FILE, RULES, format_grammar
from shardir.text.pygments_lexer import IrLexer

ROOT = Path(__file__).parents[2]
STORIES = sorted((ROOT / "tests" / "stories").rglob("*.ir"))

PROGRAM = """\
// ===== propagate
mesh @mesh = [data=4, "a b"=2] devices=[1, 0]
func @f(
  %x: f32[64@(data, "a b":(1)2)? p1, 8@-] replicated(data) of f32[64@?],
) -> (f32[] unreduced[max](data) on @m) {
  %"odd name" = all-reduce(%x.1, axes=[data:(1)2], op=add, value=-1.5e-3) : f32[] \
loc("a.py":3:1) why("no // comment")
  %y = constant(value=dense(f32, [1, -inf])) : f32[2]  // a comment
  return %y
}
"""

TOKENS = """\
Generic.Heading '// ===== propagate'
Keyword 'mesh'
Name.Function '@mesh'
Operator '='
Punctuation '['
Name.Attribute 'data'
Operator '='
Number.Integer '4'
Punctuation ','
String.Double '"a b"'
Operator '='
Number.Integer '2'
Punctuation ']'
Name.Attribute 'devices'
Operator '='
Punctuation '['
Number.Integer '1'
Punctuation ','
Number.Integer '0'
Punctuation ']'
Keyword 'func'
Name.Function '@f'
Punctuation '('
Name.Variable '%x'
Punctuation ':'
Keyword.Type 'f32'
Punctuation '['
Number.Integer '64'
Name.Decorator '@(data, "a b":(1)2)?'
Name.Constant 'p1'
Punctuation ','
Number.Integer '8'
Name.Decorator '@-'
Punctuation ']'
Keyword 'replicated'
Punctuation '('
Name.Constant 'data'
Punctuation ')'
Keyword 'of'
Keyword.Type 'f32'
Punctuation '['
Number.Integer '64'
Name.Decorator '@?'
Punctuation ']'
Punctuation ','
Punctuation ')'
Operator '->'
Punctuation '('
Keyword.Type 'f32'
Punctuation '['
Punctuation ']'
Keyword 'unreduced'
Punctuation '['
Name.Constant 'max'
Punctuation ']'
Punctuation '('
Name.Constant 'data'
Punctuation ')'
Keyword 'on'
Name.Function '@m'
Punctuation ')'
Punctuation '{'
Name.Variable '%"odd name"'
Operator '='
Name.Builtin 'all-reduce'
Punctuation '('
Name.Variable '%x.1'
Punctuation ','
Name.Attribute 'axes'
Operator '='
Punctuation '['
Name.Constant 'data'
Punctuation ':'
Punctuation '('
Number.Integer '1'
Punctuation ')'
Number.Integer '2'
Punctuation ']'
Punctuation ','
Name.Attribute 'op'
Operator '='
Name.Constant 'add'
Punctuation ','
Name.Attribute 'value'
Operator '='
Number.Float '-1.5e-3'
Punctuation ')'
Punctuation ':'
Keyword.Type 'f32'
Punctuation '['
Punctuation ']'
Keyword 'loc'
Punctuation '('
String.Double '"a.py"'
Punctuation ':'
Number.Integer '3'
Punctuation ':'
Number.Integer '1'
Punctuation ')'
Keyword 'why'
Punctuation '('
String.Double '"no // comment"'
Punctuation ')'
Name.Variable '%y'
Operator '='
Name.Builtin 'constant'
Punctuation '('
Name.Attribute 'value'
Operator '='
Keyword 'dense'
Punctuation '('
Name.Constant 'f32'
Punctuation ','
Punctuation '['
Number.Integer '1'
Punctuation ','
Keyword.Constant '-inf'
Punctuation ']'
Punctuation ')'
Punctuation ')'
Punctuation ':'
Keyword.Type 'f32'
Punctuation '['
Number.Integer '2'
Punctuation ']'
Comment.Single '// a comment'
Keyword 'return'
Name.Variable '%y'
Punctuation '}'
"""


def lexed(text: str) -> list[tuple[str, str]]:
    """The tokens of Pygments except blanks."""
    made = list(IrLexer(stripnl=False, ensurenl=False).get_tokens(text))
    assert "".join(value for _, value in made) == text
    assert not [value for kind, value in made if kind in Error]
    return [(str(kind)[6:], value) for kind, value in made if not value.isspace()]


def textmate_tokens(text: str) -> Iterator[tuple[str, str]]:
    """The scopes that an editor finds: in each line the leftmost match of the first pattern."""
    grammar = json.loads(GRAMMAR_FILE.read_text(encoding="utf-8"))
    patterns = [(re.compile(each["match"]), each["name"]) for each in grammar["patterns"]]
    for line in text.split("\n"):
        at = 0
        while at < len(line):
            found = [(m.start(), i, m) for i, (p, _) in enumerate(patterns)
                     if (m := p.search(line, at))]  # fmt: skip
            if not found:
                assert not line[at:].strip()
                break
            start, number, match = min(found, key=lambda each: each[:2])
            assert not line[at:start].strip()
            yield patterns[number][1], match[0]
            at = match.end()


def test_the_tokens_of_a_program() -> None:
    assert "".join(f"{kind} {value!r}\n" for kind, value in lexed(PROGRAM)) == TOKENS.replace(
        "String.Double", "Literal.String.Double"
    ).replace("Number.", "Literal.Number.")


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_pygments_and_textmate_agree_on_every_story(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    scopes = {f"{rule.scope}.shardir": rule.token for rule in RULES}
    expected = [(kind.removeprefix("Literal."), value) for kind, value in lexed(text)]
    assert [(scopes[scope], value) for scope, value in textmate_tokens(text)] == expected


def test_stories_exist() -> None:
    assert len(STORIES) > 20


def test_the_file_of_the_grammar_is_current() -> None:
    assert GRAMMAR_FILE.read_text(encoding="utf-8") == format_grammar(), (
        "run python -m shardir.text.highlighting"
    )


def test_pygments_finds_the_lexer_by_its_entry_point() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    module, _, name = project["entry-points"]["pygments.lexers"]["shardir"].partition(":")
    assert getattr(import_module(module), name) is IrLexer
