"""Syntax: text to syntax records with positions, before name resolution.

The grammar is in `grammar.lark`. `IrSource` parses text to the records below, whose leaves are
lark's tokens; `shardir.text.parser` resolves them. The module has no mutable state, so several
threads can parse at the same time.
"""

import re
from collections.abc import Collection
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from lark import Lark, Token

from shardir.errors import ParseError
from shardir.text import source_text


class AxisSyntax(NamedTuple):
    """An axis: `data`, or `data:(pre)size`."""

    name: Token
    pre: Token | None = None
    size: Token | None = None


class ListSyntax(NamedTuple):
    items: list[Any]


class ComplexSyntax(NamedTuple):
    at: Token
    real: Token
    imag: Token


class DenseSyntax(NamedTuple):
    """An array `dense(f32, [1.0, 2.0])`; its list is one token, which `IrSource.list` parses."""

    at: Token
    dtype: Token
    items: Any


class DenseBytesSyntax(NamedTuple):
    """An array `dense(f32[100], "base64")`."""

    at: Token
    type: Token
    data: Token


AttrSyntax = Token | AxisSyntax | ListSyntax | ComplexSyntax | DenseSyntax | DenseBytesSyntax


class AttributeSyntax(NamedTuple):
    name: Token
    attr: AttrSyntax


class TypeAnnotation(NamedTuple):
    """An annotation after the brackets of a type: `replicated(x)`, `unreduced(x)`, `on @m`."""

    word: Token
    items: list[Any]


class AnnotatedType(NamedTuple):
    tensor: Token
    marks: list[TypeAnnotation]


TypeSyntax = Token | AnnotatedType


class DimAxesSyntax(NamedTuple):
    """The axes of a dimension after `@`."""

    axes: list[AxisSyntax]


class DimSyntax(NamedTuple):
    size: Token
    axes: DimAxesSyntax | None
    open: bool
    priority: Token | None


class TensorSyntax(NamedTuple):
    dtype: Token
    dims: list[DimSyntax]


class MeshAxisSyntax(NamedTuple):
    name: Token
    size: Token


class MeshSyntax(NamedTuple):
    name: Token
    extents: list[MeshAxisSyntax]
    devices: ListSyntax | None


class ParamSyntax(NamedTuple):
    name: Token
    type: TypeSyntax
    outer: TypeSyntax | None


class ResultSyntax(NamedTuple):
    type: TypeSyntax
    outer: TypeSyntax | None


class GlobalSyntax(NamedTuple):
    type: TypeSyntax


class LocSyntax(NamedTuple):
    file: Token
    line: Token
    column: Token


class WhySyntax(NamedTuple):
    text: Token


class OpSyntax(NamedTuple):
    """An operation: result names, name, arguments, types, loc, why, blocks, in text order."""

    parts: list[Any]


class BlockSyntax(NamedTuple):
    """A block; `end` is the word `yield` or `return` before the returned values."""

    params: list[ParamSyntax]
    ops: list[OpSyntax]
    end: Token
    values: list[Token]


class FunctionSyntax(NamedTuple):
    spmd: bool
    name: Token
    params: list[ParamSyntax]
    results: list[ResultSyntax]
    body: BlockSyntax


class ModuleSyntax(NamedTuple):
    items: list[MeshSyntax | FunctionSyntax]


Children = list[Any]


class _SyntaxTransformer:
    """Functions that convert the parts of each grammar rule to its record."""

    params = results = head = devices = staticmethod(lambda parts: parts)
    module, op, list, cut = (
        staticmethod(record) for record in (ModuleSyntax, OpSyntax, ListSyntax, DimAxesSyntax)
    )
    extent, loc, attribute, why, axis, complex, dense, blob, outer = (
        staticmethod(lambda parts, record=record: record(*parts))
        for record in (
            MeshAxisSyntax,
            LocSyntax,
            AttributeSyntax,
            WhySyntax,
            AxisSyntax,
            ComplexSyntax,
            DenseSyntax,
            DenseBytesSyntax,
            GlobalSyntax,
        )
    )

    @staticmethod
    def mesh(parts: Children) -> MeshSyntax:
        name, *rest = parts
        devices = rest.pop()[0] if rest and not isinstance(rest[-1], MeshAxisSyntax) else None
        return MeshSyntax(name, rest, devices)

    @staticmethod
    def function(parts: Children) -> FunctionSyntax:
        name, params, results, body = parts[-4:]
        return FunctionSyntax(len(parts) > 4, name, params, results, body._replace(params=params))

    @staticmethod
    def param(parts: Children) -> ParamSyntax:
        return ParamSyntax(parts[0], parts[1], parts[2].type if len(parts) > 2 else None)

    @staticmethod
    def result(parts: Children) -> ResultSyntax:
        return ResultSyntax(parts[0], parts[1].type if len(parts) > 1 else None)

    @staticmethod
    def body(parts: Children) -> BlockSyntax:
        end = next(i for i, part in enumerate(parts) if not isinstance(part, OpSyntax))
        return BlockSyntax([], parts[:end], parts[end], parts[end + 1 :])

    @staticmethod
    def block(parts: Children) -> BlockSyntax:
        if isinstance(parts[0], list):
            return _SyntaxTransformer.body(parts[1:])._replace(params=parts[0][0])
        return _SyntaxTransformer.body(parts)

    @staticmethod
    def word(parts: Children) -> Token:
        token: Token = parts[0]
        return token

    @staticmethod
    def annotated_type(parts: Children) -> AnnotatedType:
        return AnnotatedType(parts[0], parts[1:])

    @staticmethod
    def mark(parts: Children) -> TypeAnnotation:
        return TypeAnnotation(parts[0], parts[1:])

    @staticmethod
    def tensor(parts: Children) -> TensorSyntax:
        return TensorSyntax(parts[0], parts[1:])

    @staticmethod
    def dim(parts: Children) -> DimSyntax:
        size, *rest = parts
        axes = rest.pop(0) if rest and isinstance(rest[0], DimAxesSyntax) else None
        open = bool(rest) and rest[0].type == "OPEN"
        return DimSyntax(
            size, axes, open, rest[-1] if rest and rest[-1].type == "PRIORITY" else None
        )


@cache
def _grammar() -> Lark:
    return Lark(
        files(__package__).joinpath("grammar.lark").read_text("utf-8"),
        parser="lalr",
        start=["module", "tensor", "list", "params"],
        maybe_placeholders=False,
        transformer=_SyntaxTransformer(),
    )


_TERMINAL_NAMES = {
    "VALUE": "a value such as %x",
    "SYMBOL": "a name such as @f",
    "TYPE": "a type such as f32[64, 128]",
    "NAME": "a name",
    "INT": "an integer",
    "FLOAT": "a number",
    "STRING": "a string",
    "PRIORITY": "a priority such as p1",
    "AT": "'@'",
    "MINUS": "'-'",
    **source_text.PUNCTUATION_NAMES,
}

_TYPE_START = re.compile(r"[A-Za-z]\w*\[")


class IrSource(source_text.SourceText):
    """A text of IR."""

    terminal_names = _TERMINAL_NAMES
    hidden_terminals = ("BLANK", "COMMENT")

    @staticmethod
    def grammar() -> Lark:
        return _grammar()

    def unexpected_text(self, found: str, position: int, expected: Collection[str]) -> ParseError:
        """Return the error for text that the grammar does not allow.

        A type is one token; where it has an error, its own rule finds the place.
        """
        if "TYPE" in expected and _TYPE_START.match(self.text, position):
            try:
                self.parse("tensor", self.text[position:], position)
            except ParseError as error:
                return error
        return super().unexpected_text(found, position, expected)

    def module(self) -> ModuleSyntax:
        """Return the syntax of the module; raise `ParseError` for a syntax error."""
        module: ModuleSyntax = self.parse("module", self.text, 0)
        return module

    def list(self, token: Token) -> ListSyntax:
        """Return the syntax of a list."""
        # Leading blanks preserve the positions of the tokens in the whole text.
        items: ListSyntax = self.parse("list", " " * (token.start_pos or 0) + str(token), 0)
        return items

    def tensor(self, token: Token) -> TensorSyntax:
        """Return the syntax of a type."""
        tensor: TensorSyntax = self.parse("tensor", str(token), token.start_pos or 0)
        return tensor

    def check_params(self) -> None:
        """Raise `ParseError` if the text is no list of parameters, such as `%x: f32[4@data]`."""
        self.parse("params", self.text, 0)
