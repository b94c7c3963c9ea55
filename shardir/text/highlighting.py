"""Syntax highlighting of programs: one table of patterns for Pygments and for TextMate grammars.

`shardir.text.pygments_lexer` is the lexer. Run `python -m shardir.text.highlighting` to write
`shardir.tmLanguage.json`, the grammar for editors such as Visual Studio Code.
"""

import json
from pathlib import Path
from typing import NamedTuple

NAME = r'(?:[\w.]+|"(?:[^"\\\n]|\\.)*")'
"""A name in the text, which may be quoted."""
AXIS = rf"{NAME}(?::\(\d+\)\d+)?"
"""A mesh axis or a sub-axis: `data`, `data:(1)2`."""


class HighlightingRule(NamedTuple):
    """The pattern of a token on one line, its TextMate scope, and its Pygments token type."""

    pattern: str
    scope: str
    token: str


RULES = (
    HighlightingRule(r"// =====.*", "markup.heading", "Generic.Heading"),
    HighlightingRule(r"//.*", "comment.line.double-slash", "Comment.Single"),
    HighlightingRule(r'"(?:[^"\\\n]|\\.)*"', "string.quoted.double", "String.Double"),
    HighlightingRule(rf"%{NAME}", "variable.other", "Name.Variable"),
    HighlightingRule(
        rf"(?<=[0-9])@(?:[-?]|\({AXIS}(?:, *{AXIS})*\)|{AXIS})\??",
        "entity.name.tag.sharding",
        "Name.Decorator",
    ),
    HighlightingRule(rf"@{NAME}", "entity.name.function", "Name.Function"),
    HighlightingRule(
        r"\b(?:mesh|spmd|func|return|yield)\b(?![-(=.])", "keyword.control", "Keyword"
    ),
    HighlightingRule(
        r"\b(?:replicated|unreduced|dense|complex|loc|why)(?=[(\[])", "keyword.other", "Keyword"
    ),
    HighlightingRule(r"\b(?:of|on)(?= )", "keyword.other", "Keyword"),
    HighlightingRule(r"[A-Za-z_][\w-]*(?= *=[^=>])", "variable.parameter", "Name.Attribute"),
    HighlightingRule(r"[A-Za-z]\w*(?=\[)", "storage.type", "Keyword.Type"),
    HighlightingRule(r"[A-Za-z_][\w-]*(?=\()", "support.function", "Name.Builtin"),
    HighlightingRule(
        r"\b(?:true|false|inf|nan)\b(?!-)|-(?:inf|nan)\b", "constant.language", "Keyword.Constant"
    ),
    HighlightingRule(
        r"-?[0-9]+(?:\.[0-9]*(?:[eE][-+]?[0-9]+)?|[eE][-+]?[0-9]+)",
        "constant.numeric.float",
        "Number.Float",
    ),
    HighlightingRule(r"-?[0-9]+", "constant.numeric.integer", "Number.Integer"),
    HighlightingRule(r"[A-Za-z_][\w-]*", "constant.other.symbol", "Name.Constant"),
    HighlightingRule(r"->|=>|=|\?|@", "keyword.operator", "Operator"),
    HighlightingRule(r"[\[\](){},:+]", "punctuation", "Punctuation"),
)
"""The rules; at each position of a line the first one that matches applies."""


def textmate_grammar() -> dict[str, object]:
    """Return the TextMate grammar of the rules."""
    return {
        "$schema": "https://raw.githubusercontent.com/martinring/tmlanguage/master/tmlanguage.json",
        "name": "shardir IR",
        "scopeName": "source.shardir",
        "fileTypes": ["ir"],
        "patterns": [{"match": rule.pattern, "name": f"{rule.scope}.shardir"} for rule in RULES],
    }


def format_grammar() -> str:
    """Return the grammar as the text of its file."""
    return json.dumps(textmate_grammar(), indent=2) + "\n"


GRAMMAR_FILE = Path(__file__).with_name("shardir.tmLanguage.json")
"""The file of the TextMate grammar."""

if __name__ == "__main__":
    GRAMMAR_FILE.write_text(format_grammar(), encoding="utf-8")
