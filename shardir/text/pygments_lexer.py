"""The Pygments lexer of programs, for documentation and terminals: `pygmentize -l shardir`.

Pygments finds it through the entry point `pygments.lexers`; shardir itself does not import it.
"""

from typing import ClassVar

from pygments.lexer import RegexLexer
from pygments.token import Whitespace, string_to_tokentype

from shardir.text.highlighting import RULES


class IrLexer(RegexLexer):
    """Lexer of the text form of the IR, and of story files."""

    name = "shardir IR"
    aliases: ClassVar[list[str]] = ["shardir", "shardir-ir"]
    filenames: ClassVar[list[str]] = ["*.ir"]
    mimetypes: ClassVar[list[str]] = ["text/x-shardir"]

    tokens: ClassVar = {
        "root": [
            (r"\s+", Whitespace),
            *((rule.pattern, string_to_tokentype(rule.token)) for rule in RULES),
        ]
    }
