"""Records of MLIR syntax, whose leaves are lark's tokens."""

from typing import Any, NamedTuple

from lark import Token

Children = list[Any]


class ListRecord(NamedTuple):
    open: Token
    items: Children
    close: Token


class ListsRecord(NamedTuple):
    """One list, or `[2] x [1]`, or the dimension numbers of a convolution."""

    lists: list[ListRecord]


class RangeRecord(NamedTuple):
    """A range such as `4:8:2`."""

    numbers: list[Token]


class TypedRecord(NamedTuple):
    """A typed value such as `1 : i64`."""

    value: Any
    type: Token


class FunctionTypeRecord(NamedTuple):
    operands: list[Token]
    results: list[Token]


class AttributeRecord(NamedTuple):
    """An attribute; `value` is `None` if only the key is written."""

    key: Token
    value: Any


class DictRecord(NamedTuple):
    """A dictionary of attributes, or a list of sub-axes in braces."""

    open: Token
    entries: list[Any]
    close: Token


class PropertiesRecord(NamedTuple):
    dict: DictRecord


class GroupRecord(NamedTuple):
    """Members in parentheses: values, typed values, named attributes and pairs of values."""

    members: Children


class TypedValueRecord(NamedTuple):
    name: Token
    type: Token


class PairRecord(NamedTuple):
    """A pair `%a = %b`, or `%a init: %b`."""

    first: Token
    second: Token


class BlockRecord(NamedTuple):
    params: list[TypedValueRecord]
    statements: Children
    close: Token


class RegionsRecord(NamedTuple):
    blocks: list[BlockRecord]


class TailRecord(NamedTuple):
    """A part after the types: `cond {...}`, `do {...}`, `reducer(...) {...}`."""

    word: Token
    parts: Children


class SignatureRecord(NamedTuple):
    """A type signature; `operands` is `None` if only one list of types is written."""

    colon: Token
    operands: list[Token] | None
    results: list[Token]


class ResultRecord(NamedTuple):
    name: Token
    number: Token | None


class OpRecord(NamedTuple):
    """An operation; `parts` are in text order; `name` is quoted in generic form."""

    results: list[ResultRecord]
    name: Token
    parts: Children
    signature: SignatureRecord | None
    tails: list[TailRecord]
    loc: Token | None


class MeshRecord(NamedTuple):
    name: Token
    body: Token


class ParamRecord(NamedTuple):
    """A parameter; `name` is `None` in a declaration."""

    name: Token | None
    type: Token
    attrs: DictRecord | None


class FunctionRecord(NamedTuple):
    at: Token
    visibility: Token | None
    name: Token
    params: list[ParamRecord]
    results: list[ParamRecord]
    body: BlockRecord | None


class AliasRecord(NamedTuple):
    name: Token
    value: Any


class NestedModuleRecord(NamedTuple):
    statements: Children
    attrs: DictRecord | None


class ModuleRecord(NamedTuple):
    statements: Children


class AxisRecord(NamedTuple):
    name: Token
    pre: Token | None = None
    size: Token | None = None


class DimRecord(NamedTuple):
    axes: list[AxisRecord]
    open: bool
    priority: Token | None


class ShardingMarkRecord(NamedTuple):
    word: Token
    reduction: Token | None
    axes: list[AxisRecord]


class ShardingRecord(NamedTuple):
    mesh: Token
    dims: list[DimRecord]
    marks: list[ShardingMarkRecord]


class MeshAxisRecord(NamedTuple):
    name: Token
    size: Token


class MeshBodyRecord(NamedTuple):
    extents: list[MeshAxisRecord]
    ids: list[Token] | None


class NumberRecord(NamedTuple):
    """A number in a constant; a complex number has two parts."""

    parts: list[Token]


class EdgeMoveRecord(NamedTuple):
    """The move of an axis `{"a" = operand-0 -> [result-0]}` in a step of propagation."""

    axis: AxisRecord
    source: Token
    targets: list[Token]


class EdgeStepRecord(NamedTuple):
    step: Token
    moves: list[EdgeMoveRecord]
