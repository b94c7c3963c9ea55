"""Source texts of a language, and parse errors with positions."""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

from lark import Lark, Token
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from shardir.errors import ParseError
from shardir.text.unclosed_brackets import CLOSING, find_unclosed

_WORD = re.compile(r"->|[%@]?[\w.-]*\w|\S")


PUNCTUATION_NAMES = {
    "LPAR": "'('", "RPAR": "')'", "LSQB": "'['", "RSQB": "']'", "LBRACE": "'{'", "RBRACE": "'}'",
    "COLON": "':'", "COMMA": "','", "EQUAL": "'='", "OPEN": "'?'",
}  # fmt: skip
"""Descriptions of terminals that both languages have."""


class SourceText:
    """A named text; each language is a subclass with a grammar.

    `terminal_names` describes the grammar's terminals for users; `hidden_terminals` are terminals
    that messages omit.
    """

    terminal_names: ClassVar[Mapping[str, str]]
    hidden_terminals: ClassVar[Sequence[str]] = ()

    def __init__(self, text: str, file: str) -> None:
        self.text, self.file = text, file

    @staticmethod
    def grammar() -> Lark:
        """Return the grammar of the language."""
        raise NotImplementedError

    def parse(self, start: str, text: str, base: int) -> Any:
        """Return the result of parsing `text`, which starts at the position `base`.

        Raises `ParseError` for a syntax error.
        """
        try:
            return self.grammar().parse(text, start=start)
        except UnexpectedInput as error:
            raise self._make_parse_error(error, base, text) from None

    def _make_parse_error(self, error: UnexpectedInput, base: int, text: str) -> ParseError:
        expected: Collection[str] = ()
        position, found = base + len(text.rstrip()), ""
        if isinstance(error, UnexpectedToken):
            expected = error.accepts or error.expected
            if error.token.type != "$END":
                position, found = base + (error.token.start_pos or 0), str(error.token)
        elif isinstance(error, UnexpectedCharacters):
            expected = error.allowed
            position = base + (error.pos_in_stream or 0)
            found = self.text[position]
        return self.unexpected_text(found, position, expected)

    def unexpected_text(self, found: str, position: int, expected: Collection[str]) -> ParseError:
        """Return the error for text that the grammar does not allow; empty text is the end.

        An unclosed bracket or quote is the cause where there is one.
        """
        unclosed = find_unclosed(self.text, position, expected)
        if unclosed is not None:
            opening = self.text[unclosed[0]]
            place = self._name_place(unclosed[1])
            message = f"{opening!r} is not closed; write {CLOSING[opening]!r} before {place}"
            return self.error(message, unclosed[0], 1)
        what = repr(found) if found else "end of text"
        message = f"unexpected {what}{self._format_expected(expected)}"
        return self.error(message, position, len(found) or 1)

    def _name_place(self, position: int) -> str:
        """Return the word at a position, or the end that is there."""
        word = _WORD.match(self.text, position)
        if word:
            return repr(word[0])
        return f"the end of the {'text' if not self.text[position:].strip() else 'line'}"

    def error(self, message: str, position: int, width: int) -> ParseError:
        """Return an error that marks `width` characters from `position` on."""
        line = self.text.count("\n", 0, position) + 1
        column = position - self.text.rfind("\n", 0, position)
        width = min(width, len(self.text[position:].split("\n", 1)[0]))
        return ParseError(message, self.text, line, column, width, self.file)

    def line(self, at: Token) -> int:
        """Return the line number of a token."""
        return self.text.count("\n", 0, at.start_pos) + 1

    def fail(self, message: str, at: Token, base: int = 0) -> ParseError:
        """Return an error that marks a token; `base` is the start of the text that contains it."""
        return self.error(message, base + (at.start_pos or 0), len(at))

    def _format_expected(self, terminals: Collection[str]) -> str:
        """Return the expected terminals as text, if there are few of them."""
        terminal_names = sorted(set(terminals) - {"$END", *self.hidden_terminals})
        words = list(dict.fromkeys(self._word(name) for name in terminal_names[:10]))
        if len(terminal_names) > 10 or not 0 < len(words) <= 5:
            return ""
        return f", expected {' or '.join(words)}"

    def _word(self, terminal: str) -> str:
        if terminal in self.terminal_names:
            return self.terminal_names[terminal]
        terminals = self.grammar().terminals
        pattern = next((t.pattern.value for t in terminals if t.name == terminal), terminal)
        plain = pattern.isidentifier() or not pattern[0].isalnum()
        return repr(pattern if plain else terminal.lower())
