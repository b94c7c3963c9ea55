"""Syntax: text to syntax records with positions, before name resolution.

The grammar is in `grammar.lark`. `IrSource` parses text to the records below, whose leaves are
lark's tokens; `shardir.text.parser` resolves them. The module has no mutable state, so several
threads can parse at the same time.
"""

from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from lark import Lark, Token

from shardir.text import source


class Axis(NamedTuple):
    """An axis: `data`, or `data:(pre)size`."""

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
    """An array `dense(f32, [1.0, 2.0])`; its list is one token, which `IrSource.list` parses."""

    at: Token
    dtype: Token
    items: Any


class Blob(NamedTuple):
    """An array `dense(f32[100], "base64")`."""

    at: Token
    type: Token
    data: Token


Attr = Token | Axis | List | Complex | Dense | Blob


class Attribute(NamedTuple):
    name: Token
    attr: Attr


class Mark(NamedTuple):
    """An annotation after the brackets of a type: `replicated(x)`, `unreduced(x)`, `on @m`."""

    word: Token
    items: list[Any]


class Marked(NamedTuple):
    tensor: Token
    marks: list[Mark]


Type = Token | Marked


class Cut(NamedTuple):
    """The axes of a dimension after `@`."""

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
    """An operation: result names, name, arguments, types, loc, why, blocks, in text order."""

    parts: list[Any]


class Block(NamedTuple):
    """A block; `end` is the word `yield` or `return` before the returned values."""

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
    """Functions that convert the parts of each grammar rule to its record."""

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
        start=["module", "tensor", "list"],
        maybe_placeholders=False,
        transformer=_Records(),
    )


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


class Source(source.Source):
    """A text of IR."""

    words = _WORDS
    hidden = ("BLANK", "COMMENT")

    @staticmethod
    def grammar() -> Lark:
        return _grammar()

    def module(self) -> Module:
        """Return the syntax of the module; raise `ParseError` for a syntax error."""
        module: Module = self.parse("module", self.text, 0)
        return module

    def list(self, token: Token) -> List:
        """Return the syntax of a list."""
        # Leading blanks preserve the positions of the tokens in the whole text.
        items: List = self.parse("list", " " * (token.start_pos or 0) + str(token), 0)
        return items

    def tensor(self, token: Token) -> Tensor:
        """Return the syntax of a type."""
        tensor: Tensor = self.parse("tensor", str(token), token.start_pos or 0)
        return tensor
