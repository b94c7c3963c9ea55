"""MLIR syntax: text to syntax records with positions, before name resolution.

The grammar is in `grammar.lark`, and the records are in `records`; `reader` and the other modules
resolve them.
"""

import re
from functools import cache
from importlib.resources import files
from typing import Any

from lark import Lark, Token

from shardir.stablehlo.reader_records import (
    Alias,
    Axis,
    Block,
    Children,
    Dict,
    Dim,
    Entry,
    Extent,
    Function,
    FunctionType,
    Group,
    List,
    Lists,
    Mark,
    Mesh,
    MeshBody,
    Module,
    Nested,
    Number,
    Op,
    Pair,
    Param,
    Props,
    Range,
    Regions,
    Result,
    Sharding,
    Signature,
    Tail,
    Typed,
    TypedValue,
)
from shardir.text import source


def _is(part: Any, kind: str) -> bool:
    return isinstance(part, Token) and part.type == kind


def _first(parts: Children, kind: type) -> Any:
    return next((part for part in parts if isinstance(part, kind)), None)


class _Records:
    """Functions that convert the parts of each grammar rule to its record."""

    params = outputs = types = listed = results = generic = pretty = elements = per_value = (
        staticmethod(lambda parts: parts)
    )
    module, range, group, regions, move, number, pair = (
        staticmethod(record) for record in (Module, Range, Group, Regions, Group, Number, Number)
    )
    props, axis, extent, of_type, bound, entry_part = (
        staticmethod(lambda parts, record=record: record(*parts))
        for record in (Props, Axis, Extent, Typed, Pair, Axis)
    )

    @staticmethod
    def nested(parts: Children) -> Nested:
        return Nested(
            [part for part in parts if isinstance(part, tuple) and type(part) is not Dict]
        )

    @staticmethod
    def alias(parts: Children) -> Alias:
        return Alias(*parts)

    @staticmethod
    def mesh(parts: Children) -> Mesh:
        return Mesh(parts[1], parts[2])

    @staticmethod
    def function(parts: Children) -> Function:
        visibility = next((part for part in parts if _is(part, "VISIBILITY")), None)
        name = next(part for part in parts if _is(part, "SYMBOL"))
        lists = [part for part in parts if isinstance(part, list)]
        results = lists[1] if len(lists) > 1 else []
        return Function(parts[0], visibility, name, lists[0], results, _first(parts, Block))

    @staticmethod
    def param(parts: Children) -> Param:
        return Param(parts[0], parts[1], _first(parts, Dict))

    @staticmethod
    def unnamed(parts: Children) -> Param:
        return Param(None, parts[0], _first(parts, Dict))

    single = output = unnamed

    @staticmethod
    def body(parts: Children) -> Block:
        inside = parts[1:-1]
        params = inside.pop(0) if inside and isinstance(inside[0], list) else []
        return Block(params, inside, parts[-1])

    region = body

    @staticmethod
    def label(parts: Children) -> list[TypedValue]:
        return parts[1].members if len(parts) > 1 else []

    @staticmethod
    def op(parts: Children) -> Op:
        loc = parts.pop() if _is(parts[-1], "LOC") else None
        results = parts[0] if len(parts) > 1 else []
        name, *rest = parts[-1]
        tails = [part for part in rest if isinstance(part, Tail)]
        signature = _first(rest, Signature)
        rest = [part for part in rest if not isinstance(part, Tail | Signature)]
        return Op(results, name, rest, signature, tails, loc)

    @staticmethod
    def result(parts: Children) -> Result:
        return Result(parts[0], parts[1] if len(parts) > 1 else None)

    @staticmethod
    def successors(parts: Children) -> Group:
        return Group(parts)

    @staticmethod
    def named(parts: Children) -> Entry:
        return Entry(*parts)

    @staticmethod
    def entry(parts: Children) -> Entry:
        return Entry(parts[0], parts[1] if len(parts) > 1 else None)

    @staticmethod
    def typed(parts: Children) -> TypedValue:
        return TypedValue(parts[0], parts[1])

    @staticmethod
    def begun(parts: Children) -> Pair:
        return Pair(parts[0], parts[2])

    @staticmethod
    def tail(parts: Children) -> Tail:
        return Tail(parts[0], parts[1:])

    @staticmethod
    def signature(parts: Children) -> Signature:
        colon, types = parts
        if isinstance(types, FunctionType):
            return Signature(colon, *types)
        return Signature(colon, None, types)

    @staticmethod
    def arrow(parts: Children) -> Signature:
        colon, operands, results = parts
        return Signature(colon, operands, results if isinstance(results, list) else [results])

    @staticmethod
    def function_type(parts: Children) -> FunctionType:
        operands, results = parts
        return FunctionType(operands, results if isinstance(results, list) else [results])

    @staticmethod
    def lists(parts: Children) -> Lists:
        return Lists([part for part in parts if isinstance(part, List)])

    @staticmethod
    def list(parts: Children) -> List:
        return List(parts[0], parts[1:-1], parts[-1])

    @staticmethod
    def dict(parts: Children) -> Dict:
        return Dict(parts[0], parts[1:-1], parts[-1])

    @staticmethod
    def mesh_body(parts: Children) -> MeshBody:
        extents = [part for part in parts if isinstance(part, Extent)]
        return MeshBody(extents, parts[len(extents) :] if len(parts) > len(extents) else None)

    @staticmethod
    def sharding(parts: Children) -> Sharding:
        dims = [part for part in parts if isinstance(part, Dim)]
        return Sharding(parts[0], dims, parts[1 + len(dims) :])

    @staticmethod
    def dim(parts: Children) -> Dim:
        priority = parts.pop() if parts and _is(parts[-1], "PRIORITY") else None
        axes = [part for part in parts if isinstance(part, Axis)]
        return Dim(axes, len(axes) < len(parts), priority)

    @staticmethod
    def mark(parts: Children) -> Mark:
        words = [part for part in parts if isinstance(part, Token)]
        axes = parts[len(words) :]
        return Mark(words[0], words[1] if len(words) > 1 else None, axes)


@cache
def _grammar() -> Lark:
    return Lark(
        files(__package__).joinpath("grammar.lark").read_text("utf-8"),
        parser="lalr",
        start=["module", "mesh_body", "sharding", "per_value", "dense"],
        maybe_placeholders=False,
        transformer=_Records(),
    )


_WORDS = {
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
    "HASH": "an attribute such as #sdy.sharding<...>",
    "ANGLE": "an attribute in <...>",
    "LPAR": "'('", "RPAR": "')'", "LSQB": "'['", "RSQB": "']'", "LBRACE": "'{'",
    "RBRACE": "'}'", "COLON": "':'", "COMMA": "','", "EQUAL": "'='", "OPEN": "'?'",
    "MORETHAN": "'>'", "LESSTHAN": "'<'",
}  # fmt: skip


class Source(source.Source):
    """An MLIR text."""

    words = _WORDS
    hidden = ("BLANK", "COMMENT", "RESOURCES")

    @staticmethod
    def grammar() -> Lark:
        return _grammar()

    def module(self) -> Module:
        """Return the syntax of the module; raise `ParseError` for a syntax error."""
        return self.parse("module", self.text, 0)  # type: ignore[no-any-return]


_SPLIT = re.compile(r"^// -----.*\n?", re.MULTILINE)


def parts_of(text: str) -> list[str]:
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
