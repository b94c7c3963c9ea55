"""Text to syntax: what was written, and where, before anyone asks what it means.

The grammar is in `grammar.lark`. `read` turns text into the records below, whose leaves are
lark's tokens; `shardir.text.parser` gives them meaning. Nothing here keeps state, so texts can be
read on many threads.
"""

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from lark import Lark, Token
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from shardir.errors import ParseError


class Axis(NamedTuple):
    """`data`, or `data:(pre)size`."""

    name: Token
    pre: Token | None = None
    size: Token | None = None


class List(NamedTuple):
    items: list[Any]


class Complex(NamedTuple):
    at: Token
    real: Token
    imag: Token


class Dense(NamedTuple):
    """`dense(f32, [1.0, 2.0])`."""

    at: Token
    dtype: Token
    items: Any


class Blob(NamedTuple):
    """`dense(f32[100], "base64")`."""

    at: Token
    type: Token
    data: Token


Attr = Token | Axis | List | Complex | Dense | Blob


class Attribute(NamedTuple):
    name: Token
    attr: Attr


class Mark(NamedTuple):
    """What follows the brackets of a type: `replicated(x)`, `unreduced(x)`, `on @m`."""

    word: Token
    items: list[Any]


class Marked(NamedTuple):
    tensor: Token
    marks: list[Mark]


Type = Token | Marked


class Cut(NamedTuple):
    """How a dimension is cut: nothing said (`None`), or these axes."""

    axes: list[Axis]


class Dim(NamedTuple):
    size: Token
    cut: Cut | None
    open: bool
    priority: Token | None


class Tensor(NamedTuple):
    dtype: Token
    dims: list[Dim]


class Extent(NamedTuple):
    name: Token
    size: Token


class Mesh(NamedTuple):
    name: Token
    extents: list[Extent]
    devices: List | None


class Param(NamedTuple):
    name: Token
    type: Type
    outer: Type | None


class Result(NamedTuple):
    type: Type
    outer: Type | None


class Outer(NamedTuple):
    type: Type


class Loc(NamedTuple):
    file: Token
    line: Token
    column: Token


class Why(NamedTuple):
    text: Token


class Op(NamedTuple):
    """Parts in reading order: result names, operation, arguments, types, loc, why, blocks."""

    parts: list[Any]


class Block(NamedTuple):
    """`end` is the word `yield` or `return`, in front of the values that leave the block."""

    params: list[Param]
    ops: list[Op]
    end: Token
    values: list[Token]


class Function(NamedTuple):
    spmd: bool
    name: Token
    params: list[Param]
    results: list[Result]
    body: Block


class Module(NamedTuple):
    items: list[Mesh | Function]


Children = list[Any]


class _Records:
    """One function per rule of the grammar, from the parts of the rule to its record."""

    params = results = head = devices = staticmethod(lambda parts: parts)
    module, op, list, cut = (staticmethod(record) for record in (Module, Op, List, Cut))
    extent, loc, attribute, why, axis, complex, dense, blob, outer = (
        staticmethod(lambda parts, record=record: record(*parts))
        for record in (Extent, Loc, Attribute, Why, Axis, Complex, Dense, Blob, Outer)
    )

    @staticmethod
    def mesh(parts: Children) -> Mesh:
        name, *rest = parts
        devices = rest.pop()[0] if rest and not isinstance(rest[-1], Extent) else None
        return Mesh(name, rest, devices)

    @staticmethod
    def function(parts: Children) -> Function:
        name, params, results, body = parts[-4:]
        return Function(len(parts) > 4, name, params, results, body._replace(params=params))

    @staticmethod
    def param(parts: Children) -> Param:
        return Param(parts[0], parts[1], parts[2].type if len(parts) > 2 else None)

    @staticmethod
    def result(parts: Children) -> Result:
        return Result(parts[0], parts[1].type if len(parts) > 1 else None)

    @staticmethod
    def body(parts: Children) -> Block:
        end = next(i for i, part in enumerate(parts) if not isinstance(part, Op))
        return Block([], parts[:end], parts[end], parts[end + 1 :])

    @staticmethod
    def block(parts: Children) -> Block:
        if isinstance(parts[0], list):
            return _Records.body(parts[1:])._replace(params=parts[0][0])
        return _Records.body(parts)

    @staticmethod
    def word(parts: Children) -> Token:
        token: Token = parts[0]
        return token

    @staticmethod
    def marked(parts: Children) -> Marked:
        return Marked(parts[0], parts[1:])

    @staticmethod
    def mark(parts: Children) -> Mark:
        return Mark(parts[0], parts[1:])

    @staticmethod
    def tensor(parts: Children) -> Tensor:
        return Tensor(parts[0], parts[1:])

    @staticmethod
    def dim(parts: Children) -> Dim:
        size, *rest = parts
        cut = rest.pop(0) if rest and isinstance(rest[0], Cut) else None
        open = bool(rest) and rest[0].type == "OPEN"
        return Dim(size, cut, open, rest[-1] if rest and rest[-1].type == "PRIORITY" else None)


@cache
def _grammar() -> Lark:
    return Lark(
        files(__package__).joinpath("grammar.lark").read_text("utf-8"),
        parser="lalr",
        start=["module", "tensor"],
        maybe_placeholders=False,
        transformer=_Records(),
    )


class Source:
    """A text with a name; makes the errors that point into it."""

    def __init__(self, text: str, file: str) -> None:
        self.text, self.file = text, file

    def module(self) -> Module:
        """What the text says; raises `ParseError` when it is not in the language."""
        return self._parse("module", self.text, 0)  # type: ignore[return-value]

    def tensor(self, token: Token) -> Tensor:
        """What the text of a type says."""
        return self._parse("tensor", str(token), token.start_pos or 0)  # type: ignore[return-value]

    def _parse(self, start: str, text: str, base: int) -> object:
        try:
            return _grammar().parse(text, start=start)
        except UnexpectedInput as error:
            raise self._unexpected(error, base) from None

    def _unexpected(self, error: UnexpectedInput, base: int) -> ParseError:
        if isinstance(error, UnexpectedToken):
            token, wanted = error.token, error.accepts or error.expected
            if token.type != "$END":
                found, position, width = repr(str(token)), token.start_pos or 0, len(token)
                return self.error(f"unexpected {found}{_wish(wanted)}", base + position, width)
        if isinstance(error, UnexpectedCharacters):
            position = error.pos_in_stream or 0
            char = self.text[base + position]
            return self.error(f"unexpected {char!r}{_wish(error.allowed)}", base + position, 1)
        message = f"unexpected end of text{_wish(getattr(error, 'accepts', None))}"
        return self.error(message, len(self.text.rstrip()), 1)

    def error(self, message: str, position: int, width: int) -> ParseError:
        """An error about `width` characters from `position` on."""
        line = self.text.count("\n", 0, position) + 1
        column = position - self.text.rfind("\n", 0, position)
        width = min(width, len(self.text[position:].split("\n", 1)[0]))
        return ParseError(message, self.text, line, column, width, self.file)

    def line(self, at: Token) -> int:
        """The number of the line that a token stands on."""
        return self.text.count("\n", 0, at.start_pos) + 1

    def fail(self, message: str, at: Token, base: int = 0) -> ParseError:
        """An error about a token; `base` is where the text starts that the token was read from."""
        return self.error(message, base + (at.start_pos or 0), len(at))


_WORDS = {
    "VALUE": "a value such as %x",
    "SYMBOL": "a name such as @f",
    "TYPE": "a type such as f32[64, 128]",
    "NAME": "a name",
    "INT": "an integer",
    "FLOAT": "a number",
    "STRING": "a string",
    "PRIORITY": "a priority such as p1",
    "LPAR": "'('", "RPAR": "')'", "LSQB": "'['", "RSQB": "']'", "LBRACE": "'{'", "RBRACE": "'}'",
    "COLON": "':'", "COMMA": "','", "EQUAL": "'='", "AT": "'@'", "MINUS": "'-'", "OPEN": "'?'",
}  # fmt: skip


def _wish(terminals: Sequence[str] | set[str] | None) -> str:
    """What would have been right, if that is quickly said."""
    known = sorted(set(terminals or ()) - {"$END", "BLANK", "COMMENT"})
    if not 0 < len(known) <= 5:
        return ""
    return f", expected {' or '.join(_word(name) for name in known)}"


def _word(terminal: str) -> str:
    if terminal in _WORDS:
        return _WORDS[terminal]
    pattern = next((t.pattern.value for t in _grammar().terminals if t.name == terminal), terminal)
    return repr(pattern if pattern.isidentifier() or not pattern[0].isalnum() else terminal.lower())
