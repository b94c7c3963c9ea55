"""MLIR syntax: text to syntax records with positions, before name resolution.

The grammar is in `grammar.lark`, and the records are in `records`; `reader` and the other modules
resolve them.
"""

import re
from functools import cache
from importlib.resources import files
from typing import Any

from lark import Lark, Token

from shardir.stablehlo.reading.records import (
    AliasRecord,
    AttributeRecord,
    AxisRecord,
    BlockRecord,
    Children,
    DictRecord,
    DimRecord,
    EdgeMoveRecord,
    EdgeStepRecord,
    FunctionRecord,
    FunctionTypeRecord,
    GroupRecord,
    ListRecord,
    ListsRecord,
    MeshAxisRecord,
    MeshBodyRecord,
    MeshRecord,
    ModuleRecord,
    NestedModuleRecord,
    NumberRecord,
    OpRecord,
    PairRecord,
    ParamRecord,
    PropertiesRecord,
    RangeRecord,
    RegionsRecord,
    ResultRecord,
    ShardingMarkRecord,
    ShardingRecord,
    SignatureRecord,
    TailRecord,
    TypedRecord,
    TypedValueRecord,
)
from shardir.text import source_text


def _is_token(part: object, kind: str) -> bool:
    return isinstance(part, Token) and part.type == kind


def _first_of_type(parts: Children, kind: type) -> Any:
    return next((part for part in parts if isinstance(part, kind)), None)


class _MlirTransformer:
    """Functions that convert the parts of each grammar rule to its record."""

    params = outputs = types = listed = results = generic = pretty = elements = per_value = (
        edges
    ) = staticmethod(lambda parts: parts)
    module, range, group, regions, move, number, pair = (
        staticmethod(record)
        for record in (
            ModuleRecord,
            RangeRecord,
            GroupRecord,
            RegionsRecord,
            GroupRecord,
            NumberRecord,
            NumberRecord,
        )
    )
    props, axis, extent, of_type, bound_value, entry_part = (
        staticmethod(lambda parts, record=record: record(*parts))
        for record in (
            PropertiesRecord,
            AxisRecord,
            MeshAxisRecord,
            TypedRecord,
            PairRecord,
            AxisRecord,
        )
    )

    @staticmethod
    def nested_module(parts: Children) -> NestedModuleRecord:
        statements = [
            part for part in parts if isinstance(part, tuple) and type(part) is not DictRecord
        ]
        return NestedModuleRecord(statements, _first_of_type(parts, DictRecord))

    @staticmethod
    def alias(parts: Children) -> AliasRecord:
        return AliasRecord(*parts)

    @staticmethod
    def mesh(parts: Children) -> MeshRecord:
        return MeshRecord(parts[1], parts[2])

    @staticmethod
    def function(parts: Children) -> FunctionRecord:
        visibility = next((part for part in parts if _is_token(part, "VISIBILITY")), None)
        name = next(part for part in parts if _is_token(part, "SYMBOL"))
        lists = [part for part in parts if isinstance(part, list)]
        results = lists[1] if len(lists) > 1 else []
        return FunctionRecord(
            parts[0], visibility, name, lists[0], results, _first_of_type(parts, BlockRecord)
        )

    @staticmethod
    def param(parts: Children) -> ParamRecord:
        return ParamRecord(parts[0], parts[1], _first_of_type(parts, DictRecord))

    @staticmethod
    def unnamed_param(parts: Children) -> ParamRecord:
        return ParamRecord(None, parts[0], _first_of_type(parts, DictRecord))

    single = output = unnamed_param

    @staticmethod
    def body(parts: Children) -> BlockRecord:
        inside = parts[1:-1]
        params = inside.pop(0) if inside and isinstance(inside[0], list) else []
        return BlockRecord(params, inside, parts[-1])

    region = body

    @staticmethod
    def label(parts: Children) -> list[TypedValueRecord]:
        return parts[1].members if len(parts) > 1 else []

    @staticmethod
    def op(parts: Children) -> OpRecord:
        loc = parts.pop() if _is_token(parts[-1], "LOC") else None
        results = parts[0] if len(parts) > 1 else []
        name, *rest = parts[-1]
        tails = [part for part in rest if isinstance(part, TailRecord)]
        signature = _first_of_type(rest, SignatureRecord)
        rest = [part for part in rest if not isinstance(part, TailRecord | SignatureRecord)]
        return OpRecord(results, name, rest, signature, tails, loc)

    @staticmethod
    def result(parts: Children) -> ResultRecord:
        return ResultRecord(parts[0], parts[1] if len(parts) > 1 else None)

    @staticmethod
    def successors(parts: Children) -> GroupRecord:
        return GroupRecord(parts)

    @staticmethod
    def named_attribute(parts: Children) -> AttributeRecord:
        return AttributeRecord(*parts)

    @staticmethod
    def entry(parts: Children) -> AttributeRecord:
        return AttributeRecord(parts[0], parts[1] if len(parts) > 1 else None)

    @staticmethod
    def typed_value(parts: Children) -> TypedValueRecord:
        return TypedValueRecord(parts[0], parts[1])

    @staticmethod
    def initialized_value(parts: Children) -> PairRecord:
        return PairRecord(parts[0], parts[2])

    @staticmethod
    def tail(parts: Children) -> TailRecord:
        return TailRecord(parts[0], parts[1:])

    @staticmethod
    def signature(parts: Children) -> SignatureRecord:
        colon, types = parts
        if isinstance(types, FunctionTypeRecord):
            return SignatureRecord(colon, *types)
        return SignatureRecord(colon, None, types)

    @staticmethod
    def arrow(parts: Children) -> SignatureRecord:
        colon, operands, results = parts
        return SignatureRecord(colon, operands, results if isinstance(results, list) else [results])

    @staticmethod
    def function_type(parts: Children) -> FunctionTypeRecord:
        operands, results = parts
        return FunctionTypeRecord(operands, results if isinstance(results, list) else [results])

    @staticmethod
    def lists(parts: Children) -> ListsRecord:
        return ListsRecord([part for part in parts if isinstance(part, ListRecord)])

    @staticmethod
    def list(parts: Children) -> ListRecord:
        return ListRecord(parts[0], parts[1:-1], parts[-1])

    @staticmethod
    def dict(parts: Children) -> DictRecord:
        return DictRecord(parts[0], parts[1:-1], parts[-1])

    @staticmethod
    def mesh_body(parts: Children) -> MeshBodyRecord:
        extents = [part for part in parts if isinstance(part, MeshAxisRecord)]
        return MeshBodyRecord(extents, parts[len(extents) :] if len(parts) > len(extents) else None)

    @staticmethod
    def sharding(parts: Children) -> ShardingRecord:
        dims = [part for part in parts if isinstance(part, DimRecord)]
        return ShardingRecord(parts[0], dims, parts[1 + len(dims) :])

    @staticmethod
    def dim(parts: Children) -> DimRecord:
        priority = parts.pop() if parts and _is_token(parts[-1], "PRIORITY") else None
        axes = [part for part in parts if isinstance(part, AxisRecord)]
        return DimRecord(axes, len(axes) < len(parts), priority)

    @staticmethod
    def mark(parts: Children) -> ShardingMarkRecord:
        words = [part for part in parts if isinstance(part, Token)]
        axes = parts[len(words) :]
        return ShardingMarkRecord(words[0], words[1] if len(words) > 1 else None, axes)

    @staticmethod
    def edge_move(parts: Children) -> EdgeMoveRecord:
        return EdgeMoveRecord(parts[0], parts[1], parts[2:])

    @staticmethod
    def edge_step(parts: Children) -> EdgeStepRecord:
        return EdgeStepRecord(parts[0], parts[1:])


@cache
def _grammar() -> Lark:
    return Lark(
        files(__package__).joinpath("grammar.lark").read_text("utf-8"),
        parser="lalr",
        start=["module", "mesh_body", "sharding", "per_value", "edges", "dense"],
        maybe_placeholders=False,
        transformer=_MlirTransformer(),
    )


_TERMINAL_NAMES = {
    "VALUE": "a value such as %x",
    "SYMBOL": "a name such as @f",
    "TYPE": "a type such as tensor<8x4xf32>",
    "NAME": "a name",
    "KEY": "the name of an attribute",
    "UNIT": "the name of an attribute",
    "INT": "an integer",
    "HEX": "bits such as 0x7F",
    "FLOAT": "a number",
    "STRING": "a string",
    "PRIORITY": "a priority such as p1",
    "STEP": "a step such as step-2",
    "TENSOR": "a tensor such as operand-0",
    "HASH": "an attribute such as #sdy.sharding<...>",
    "ANGLE": "an attribute in <...>",
    "MORETHAN": "'>'",
    "LESSTHAN": "'<'",
    **source_text.PUNCTUATION_NAMES,
}


class MlirSource(source_text.SourceText):
    """An MLIR text."""

    terminal_names = _TERMINAL_NAMES
    hidden_terminals = ("BLANK", "COMMENT", "RESOURCES")

    @staticmethod
    def grammar() -> Lark:
        return _grammar()

    def module(self) -> ModuleRecord:
        """Return the syntax of the module; raise `ParseError` for a syntax error."""
        return self.parse("module", self.text, 0)  # type: ignore[no-any-return]


_SPLIT = re.compile(r"^// -----.*\n?", re.MULTILINE)


def split_modules(text: str) -> list[str]:
    """Return the modules of a text that are separated by lines of `// -----`.

    Empty lines precede each part, so that errors state the line in the file.
    """
    parts, start = [], 0
    for match in [*_SPLIT.finditer(text), None]:
        end = match.start() if match else len(text)
        if text[start:end].strip():
            parts.append("\n" * text.count("\n", 0, start) + text[start:end])
        start = match.end() if match else end
    return parts
