"""Writer of MLIR lines in generic form, which every parser accepts.

A rule writes the StableHLO form of one IR operation, usually a single operation:
`MlirWriter.write_op` gives it the results, the sharding and the location. `MlirWriter.write_step`
writes auxiliary operations (constants, intermediate results) with fresh names.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from shardir.errors import ShardirError
from shardir.ir.builder import UniqueNames
from shardir.ir.dtypes import RBG_KEYS
from shardir.ir.mesh import Mesh
from shardir.ir.module import Block, Op, Value
from shardir.ir.types import TensorType
from shardir.op_rules.rule_table import RuleTable
from shardir.stablehlo.debug_attributes import NO_DEBUG_ATTRIBUTES, DebugAttributes
from shardir.stablehlo.writing.attributes import (
    format_literal,
    format_sharding_per_value,
    format_tensor,
)

Attrs = Mapping[str, str]
TypedName = tuple[str, TensorType]
"""The name and type of a value."""
WrittenRegion = tuple[Sequence[TypedName], Sequence[str]]
"""The parameters and the lines of a block."""


class FunctionNames(Protocol):
    """The names of the functions that calls refer to."""

    def name_of(self, op: Op, mesh: Mesh | None, *, has_replicas: bool) -> str: ...


class ExportError(ShardirError, ValueError):
    """A module that StableHLO cannot express."""


REFERENCE = re.compile(r'"(?:[^"\\]|\\.)*"|%[\w$.-]*(?:#\d+)?')
PLAIN_NAME = re.compile(r"\d+|[A-Za-z_][\w$.-]*")


class MlirWriter:
    """The lines of one function.

    `mesh` is the mesh whose devices run the program, as `replicas`, or as partitions in a manual
    computation. With `for_xla`, the text is for XLA: it has no custom calls of shardir, and
    states everything in which XLA would differ. `functions` and `channels` are those of the
    whole text.
    """

    def __init__(
        self,
        meshes: Mapping[str, Mesh],
        *,
        locations: bool,
        functions: FunctionNames,
        channels: Iterator[int],
        mesh: Mesh | None = None,
        replicas: bool = False,
        for_xla: bool = False,
        debug: DebugAttributes = NO_DEBUG_ATTRIBUTES,
    ) -> None:
        self.meshes = dict(meshes)
        self.locations = locations
        self.mesh, self.replicas, self.for_xla = mesh, replicas, for_xla
        self.debug = debug
        self.functions = functions
        self._channels = channels
        self.lines: list[str] = []
        self._names = UniqueNames()
        self._names_of: dict[Value, str] = {}

    def define(self, value: Value) -> str:
        """Assign a valid MLIR name to a value, its own if possible.

        Raise `ExportError` for keys of four words, for which MLIR has no element type.
        """
        if value.type.dtype in RBG_KEYS:
            raise ExportError(
                f"%{value.name} is {value.type}, and StableHLO has no element type of 128 bits; "
                "run the pass expand-rbg-keys, which replaces keys of four words by their words"
            )
        name_hint = (
            value.name if not value.name or PLAIN_NAME.fullmatch(value.name) else f"v{value.name}"
        )
        name = self._names_of[value] = "%" + self._names.fresh(re.sub(r"[^\w$.-]", "_", name_hint))
        return name

    def next_channel(self) -> int:
        """Return an unused channel number."""
        return next(self._channels)

    def alias(self, value: Value, name: str) -> None:
        """Let a value refer to an existing name."""
        self._names_of[value] = name

    def name(self, value: Value) -> str:
        return self._names_of[value]

    def operands(self, op: Op) -> list[str]:
        return [self._names_of[value] for value in op.operands]

    def write_op(
        self,
        op: Op,
        name: str,
        attrs: Attrs | None = None,
        *,
        operands: Sequence[TypedName] | None = None,
        regions: Sequence[WrittenRegion] = (),
        hidden: Sequence[TensorType] = (),
        extra: Attrs | None = None,
        annotate: bool = True,
    ) -> None:
        """Write the operation for `op`, by default with its operands.

        `hidden` are unused results before those of `op`; `extra` are attributes outside of the
        dialect.
        """
        inputs = [self.typed_name(value) for value in op.operands] if operands is None else operands
        results = [*(Value(type, "s0") for type in hidden), *op.results]
        named_results = [(self.define(value), value.type) for value in results]
        more = dict(extra or {})
        own = [self.typed_name(value) for value in op.operands]
        if not hidden and inputs[: len(own)] == own:
            more.update(self._debug_attributes(op))
        if annotate and (shardings := format_sharding_per_value(results, self.meshes)):
            more["sdy.sharding"] = shardings
        self._write(named_results, name, inputs, attrs or {}, regions, more, self.location(op))

    def write_opaque(self, op: Op, head: str, attributes: str, types: str) -> None:
        """Write an opaque operation from its text; a single % stands for the next operand.

        Names that its regions define are replaced by fresh ones.
        """
        operands = iter(op.operands)
        inner: dict[str, str] = {}

        def word(match: re.Match[str]) -> str:
            word = match[0]
            if word == "%":
                return self._names_of[next(operands)]
            if not word.startswith("%"):
                return word
            name, mark, number = word.partition("#")
            if name not in inner:
                inner[name] = "%" + self._names.fresh("o0")
            return inner[name] + mark + number

        text = REFERENCE.sub(word, head)
        extra = [REFERENCE.sub(word, attributes)] if attributes else []
        extra += (f"{key} = {value}" for key, value in self._debug_attributes(op).items())
        if shardings := format_sharding_per_value(op.results, self.meshes):
            extra.append(f"sdy.sharding = {shardings}")
        if extra:
            text += f" {{{', '.join(extra)}}}"
        types = REFERENCE.sub(word, types)
        names = ", ".join(self.define(value) for value in op.results)
        text = f"{f'{names} = ' if names else ''}{text} {types}{self.location(op)}"
        self.lines += text.split("\n")

    def _debug_attributes(self, op: Op) -> Attrs:
        """Return the debug attributes of an operation, which are true of one written operation that
        has its operands and results only.
        """
        return self.debug.operations.get(op.results[0], {}) if op.results else {}

    def write_step(
        self,
        name: str,
        inputs: Sequence[TypedName],
        result: TensorType,
        attrs: Attrs | None = None,
        regions: Sequence[WrittenRegion] = (),
    ) -> TypedName:
        """Write an auxiliary operation; return its result and type."""
        value_name = "%" + self._names.fresh("s0")
        self._write([(value_name, result)], name, inputs, attrs or {}, regions, {}, "")
        return value_name, result

    def full_precision(self) -> Attrs:
        """Return the attribute with which XLA multiplies in the precision of the operands.

        By default, XLA rounds f32 operands to fewer bits on TPUs and GPUs.
        """
        if not self.for_xla:
            return {}
        each = "#stablehlo<precision HIGHEST>"
        return {"precision_config": f"[{each}, {each}]"}

    def constant(self, value: object, type: TensorType) -> TypedName:
        return self.write_step(
            "stablehlo.constant", (), type, {"value": format_literal(value, type)}
        )

    def _write(
        self,
        results: Sequence[TypedName],
        name: str,
        inputs: Sequence[TypedName],
        attrs: Attrs,
        regions: Sequence[WrittenRegion],
        extra: Attrs,
        location: str,
    ) -> None:
        results_text = f"{', '.join(name for name, _ in results)} = " if results else ""
        properties = f" <{{{_fields(attrs)}}}>" if attrs else ""
        rest = f" {{{_fields(extra)}}}" if extra else ""
        types = ", ".join(format_tensor(type) for _, type in inputs)
        gives = ", ".join(format_tensor(type) for _, type in results)
        head = f'{results_text}"{name}"({", ".join(name for name, _ in inputs)}){properties}'
        tail = f"{rest} : ({types}) -> ({gives}){location}"
        if not regions:
            self.lines.append(head + tail)
            return
        for i, (params, lines) in enumerate(regions):
            self.lines.append(f"{head} ({{" if i == 0 else "}, {")
            if params:
                listed = ", ".join(f"{param}: {format_tensor(type)}" for param, type in params)
                self.lines.append(f"^bb0({listed}):")
            self.lines += (f"  {line}" for line in lines)
        self.lines.append("})" + tail)

    def location(self, op: Op) -> str:
        """Return the location with the operation's first result and the user's line."""
        if not self.locations:
            return ""
        name = op.results[0].name if op.results else ""
        line = f'("{op.loc.file}":{op.loc.line}:{op.loc.column})' if op.loc else ""
        return f' loc("{name}"{line})'

    def typed_name(self, value: Value) -> TypedName:
        return self._names_of[value], value.type

    def region(
        self,
        params: Sequence[Value],
        write: Callable[[], Sequence[TypedName]],
        end: str = "stablehlo.return",
    ) -> WrittenRegion:
        """Return a block whose operations `write` writes; it returns the values that `write`
        returns.
        """
        outer, self.lines = self.lines, []
        named = [(self.define(param), param.type) for param in params]
        self.write_terminator(write(), end)
        lines, self.lines = self.lines, outer
        return named, lines

    def small_region(
        self,
        types: Sequence[TensorType],
        write: Callable[..., Sequence[TypedName]],
    ) -> WrittenRegion:
        """Return a block with fresh parameters, such as that of a reduction."""
        outer, self.lines = self.lines, []
        params = [("%" + self._names.fresh("p0"), type) for type in types]
        self.write_terminator(write(*params))
        lines, self.lines = self.lines, outer
        return params, lines

    def write_terminator(self, values: Sequence[TypedName], end: str = "stablehlo.return") -> None:
        self._write([], end, values, {}, (), {}, "")

    def block(self, block: Block) -> tuple[Value, ...]:
        """Write the operations of a block; return its returned values."""
        for op in block.ops:
            WRITERS.of(op)(self, op)
        return block.returns


def _fields(attrs: Attrs) -> str:
    return ", ".join(f"{key} = {value}" for key, value in attrs.items())


WritingRule = Callable[[MlirWriter, Op], None]
WRITERS: RuleTable[WritingRule] = RuleTable(
    "stablehlo", "@WRITERS.rule({0!r}) of shardir.stablehlo.writing.writer"
)
"""The writing rule of each operation."""
