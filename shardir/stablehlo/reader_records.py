"""Records of MLIR syntax, whose leaves are lark's tokens."""

from typing import Any, NamedTuple

from lark import Token

Children = list[Any]


class List(NamedTuple):
    open: Token
    items: Children
    close: Token


class Lists(NamedTuple):
    """One list, or `[2] x [1]`, or the dimension numbers of a convolution."""

    lists: list[List]


class Range(NamedTuple):
    """A range such as `4:8:2`."""

    numbers: list[Token]


class Typed(NamedTuple):
    """A typed value such as `1 : i64`."""

    value: Any
    type: Token


class FunctionType(NamedTuple):
    operands: list[Token]
    results: list[Token]


class Entry(NamedTuple):
    """An attribute; `value` is `None` if only the key is written."""

    key: Token
    value: Any


class Dict(NamedTuple):
    """A dictionary of attributes, or a list of sub-axes in braces."""

    open: Token
    entries: list[Any]
    close: Token


class Props(NamedTuple):
    dict: Dict


class Group(NamedTuple):
    """Members in parentheses: values, typed values, named attributes and pairs of values."""

    members: Children


class TypedValue(NamedTuple):
    name: Token
    type: Token


class Pair(NamedTuple):
    """A pair `%a = %b`, or `%a init: %b`."""

    first: Token
    second: Token


class Block(NamedTuple):
    params: list[TypedValue]
    statements: Children
    close: Token


class Regions(NamedTuple):
    blocks: list[Block]


class Tail(NamedTuple):
    """A part after the types: `cond {...}`, `do {...}`, `reducer(...) {...}`."""

    word: Token
    parts: Children


class Signature(NamedTuple):
    """A type signature; `operands` is `None` if only one list of types is written."""

    colon: Token
    operands: list[Token] | None
    results: list[Token]


class Result(NamedTuple):
    name: Token
    number: Token | None


class Op(NamedTuple):
    """An operation; `parts` are in text order; `name` is quoted in generic form."""

    results: list[Result]
    name: Token
    parts: Children
    signature: Signature | None
    tails: list[Tail]
    loc: Token | None


class Mesh(NamedTuple):
    name: Token
    body: Token


class Param(NamedTuple):
    """A parameter; `name` is `None` in a declaration."""

    name: Token | None
    type: Token
    attrs: Dict | None


class Function(NamedTuple):
    at: Token
    visibility: Token | None
    name: Token
    params: list[Param]
    results: list[Param]
    body: Block | None


class Alias(NamedTuple):
    name: Token
    value: Any


class Nested(NamedTuple):
    statements: Children


class Module(NamedTuple):
    statements: Children


class Axis(NamedTuple):
    name: Token
    pre: Token | None = None
    size: Token | None = None


class Dim(NamedTuple):
    axes: list[Axis]
    open: bool
    priority: Token | None


class Mark(NamedTuple):
    word: Token
    reduction: Token | None
    axes: list[Axis]


class Sharding(NamedTuple):
    mesh: Token
    dims: list[Dim]
    marks: list[Mark]


class Extent(NamedTuple):
    name: Token
    size: Token


class MeshBody(NamedTuple):
    extents: list[Extent]
    ids: list[Token] | None


class Number(NamedTuple):
    """A number in a constant; a complex number has two parts."""

    parts: list[Token]
