"""Source texts of a language, and parse errors with positions."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from lark import Lark, Token
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from shardir.errors import ParseError


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
        if isinstance(error, UnexpectedToken):
            token, expected = error.token, error.accepts or error.expected
            if token.type != "$END":
                token_text, position, width = repr(str(token)), token.start_pos or 0, len(token)
                return self.error(
                    f"unexpected {token_text}{self._format_expected(expected)}",
                    base + position,
                    width,
                )
        if isinstance(error, UnexpectedCharacters):
            position = error.pos_in_stream or 0
            char = self.text[base + position]
            return self.error(
                f"unexpected {char!r}{self._format_expected(error.allowed)}", base + position, 1
            )
        end = base + len(text) if base else len(self.text.rstrip())
        message = f"unexpected end of text{self._format_expected(getattr(error, 'accepts', None))}"
        return self.error(message, end, 1)

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

    def _format_expected(self, terminals: Sequence[str] | set[str] | None) -> str:
        """Return the expected terminals as text, if there are few of them."""
        terminal_names = sorted(set(terminals or ()) - {"$END", *self.hidden_terminals})
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
