"""Printer: IR to text, one operation per line without alignment, so that diffs stay small.

Printing never fails, even for invalid modules, because the verifier prints them in its messages.
Values keep their names; only duplicate and empty names are replaced by unique ones.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from shardir.display.representation import ir_text
from shardir.ir.builder import UniqueNames
from shardir.ir.mesh import Mesh
from shardir.ir.module import Block, Function, GlobalTensor, Module, Op, SpmdInterface, Value
from shardir.ir.operation import Attr, Dense, Symbol
from shardir.ir.sharding import Axes, Axis, DimSharding, Sharding
from shardir.ir.types import TensorType
from shardir.text.literals import (
    format_dense,
    format_name,
    format_number,
    format_symbol,
    format_word,
    quote_string,
)

AXIS_ATTRIBUTES = ("axes", "in_axes", "out_axes", "source", "target")
"""The attributes whose words are mesh axes."""


def print_module(module: Module, *, locations: bool = False) -> str:
    """Return the module as text; with `locations`, including origins and reasons of operations."""
    return Printer(module.meshes, locations).module(module)


def print_mesh(mesh: Mesh) -> str:
    axes = ", ".join(f"{format_word(name)}={size}" for name, size in mesh.axes)
    devices = f" devices=[{', '.join(map(str, mesh.device_ids))}]" if mesh.device_ids else ""
    return f"mesh @{format_name(mesh.name)} = [{axes}]{devices}"


@dataclass
class OpLine:
    """The text of an operation in parts, so that errors can underline a part."""

    results: list[str]
    name: str
    operands: list[str]
    attrs: list[str]
    types: list[str]
    suffix: str = ""

    def __str__(self) -> str:
        left = f"{', '.join(self.results)} = " if self.results else ""
        right = f" : {', '.join(self.types)}" if self.types else ""
        return f"{left}{self.name}({', '.join(self.operands + self.attrs)}){right}{self.suffix}"

    def span(self, part: str, index: int = 0) -> tuple[int, int]:
        """Return the start and width of a part; of the operation's name if it is missing."""
        at = 0
        arguments = self.operands + self.attrs
        if part == "attrs":
            part, index = "arguments", index + len(self.operands)
        for name, pieces, after in (
            ("results", self.results, 3 if self.results else 0),
            ("name", [self.name], 1),
            ("arguments", arguments, 4),
            ("types", self.types, 0),
        ):
            if name == ("arguments" if part == "operands" else part) and index < len(pieces):
                return at + sum(len(p) + 2 for p in pieces[:index]), len(pieces[index])
            at += len(", ".join(pieces)) + after
        return (0, len(str(self))) if part == "name" else self.span("name")


@dataclass
class Printer:
    """Prints the parts of a module with the given meshes."""

    meshes: tuple[Mesh, ...]
    locations: bool = False
    _types: dict[tuple[TensorType, Sharding | None, bool], str] = field(default_factory=dict)
    # Found by identity, which is faster than by equality; the values keep the keys alive. Passes
    # share the attributes of an operation, so a printer of several stages formats them once.
    _same_attributes: dict[int, tuple[list[str], Mapping[str, Attr]]] = field(default_factory=dict)
    _same_types: dict[tuple[int, int, bool], tuple[str, TensorType, Sharding | None]] = field(
        default_factory=dict
    )

    def module(self, module: Module) -> str:
        """Return a module as text. Its meshes are those of the printer."""
        meshes = "\n".join(map(print_mesh, module.meshes))
        functions = ("\n".join(self.function(f)) for f in module.functions)
        text = "\n\n".join(filter(None, [meshes, *functions]))
        return f"{text}\n" if text else ""

    def function(self, function: Function) -> list[str]:
        """Return the lines of a function."""
        body, spmd = function.body, function.spmd
        names = unique_names(function)
        params = [self.param(p, names) for p in body.params]
        results = self.results(function)
        if spmd:
            params = _append_global_types(params, [self.global_type(g) for g in spmd.params])
            results = _append_global_types(results, [self.global_type(g) for g in spmd.results])
        head = f"{'spmd ' if spmd else ''}func @{format_name(function.name)}("
        tail = f") -> ({', '.join(results)}) {{"
        lines = [head, *(f"  {param}," for param in params), tail] if params else [head + tail]
        self._ops(body, names, "  ", lines)
        lines.append(f"  {_terminator('return', body, names)}")
        lines.append("}")
        return lines

    def param(self, param: Value, names: Mapping[Value, str]) -> str:
        return f"{names[param]}: {self.sharded_type(param.type, param.sharding)}"

    def results(self, function: Function) -> list[str]:
        """Return the type of each result with its requested sharding."""
        requested = list(function.result_shardings) + [None] * len(function.body.returns)
        return [
            self.sharded_type(v.type, s)
            for v, s in zip(function.body.returns, requested, strict=False)
        ]

    def global_type(self, outer: GlobalTensor) -> str:
        return self.sharded_type(outer.type, outer.sharding, outer=True)

    def op(self, op: Op, names: Mapping[Value, str]) -> OpLine:
        """Return the line of an operation without its blocks."""
        return OpLine(
            [names[v] for v in op.results],
            op.spec.name,
            [names[v] for v in op.operands],
            self._attributes(op) if op.attrs else [],
            [self.sharded_type(v.type, v.sharding) for v in op.results],
            self._origin(op) if self.locations else "",
        )

    def _attributes(self, op: Op) -> list[str]:
        """Return the texts of the attributes of an operation."""
        same = self._same_attributes.get(id(op.attrs))
        if same is not None:
            return same[0]
        texts = [f"{key}={self.attr(key, attr)}" for key, attr in op.attrs.items()]
        self._same_attributes[id(op.attrs)] = texts, op.attrs
        return texts

    def operation(self, op: Op) -> list[str]:
        """Return the lines of an operation with its blocks."""
        lines: list[str] = []
        self._ops(Block((), (op,), ()), _ValueTexts(), "", lines)
        return lines

    def block(self, block: Block) -> list[str]:
        """Return the lines of a block."""
        lines, names = ["{"], _ValueTexts()
        if block.params:
            lines.append(f"  ({', '.join(self.param(p, names) for p in block.params)}) =>")
        self._ops(block, names, "  ", lines)
        return [*lines, f"  {_terminator('yield', block, names)}", "}"]

    def _ops(self, block: Block, names: Mapping[Value, str], indent: str, lines: list[str]) -> None:
        for op in block.ops:
            lines.append(f"{indent}{self.op(op, names)}")
            if not op.blocks:
                continue
            inner = f"{indent}  "
            for block in op.blocks:
                lines[-1] += " {"
                if block.params:
                    params = ", ".join(self.param(p, names) for p in block.params)
                    lines.append(f"{inner}({params}) =>")
                self._ops(block, names, inner, lines)
                lines.append(f"{inner}{_terminator('yield', block, names)}")
                lines.append(f"{indent}}}")

    @staticmethod
    def _origin(op: Op) -> str:
        loc = f" loc({quote_string(op.loc.file)}:{op.loc.line}:{op.loc.column})" if op.loc else ""
        return loc + (f" why({quote_string(op.why)})" if op.why else "")

    def sharded_type(
        self, type: TensorType, sharding: Sharding | None, *, outer: bool = False
    ) -> str:
        """Return a type with its sharding; a global type (`outer`) always shows one."""
        same = self._same_types.get((id(type), id(sharding), outer))
        if same is not None:
            return same[0]
        key = (type, sharding, outer)
        text = self._types.get(key)
        if text is None:
            text = self._types[key] = self._format_sharded_type(type, sharding, outer)
        self._same_types[id(type), id(sharding), outer] = text, type, sharding
        return text

    def _format_sharded_type(self, type: TensorType, sharding: Sharding | None, outer: bool) -> str:
        if sharding is None:
            return str(type)
        mesh = next((mesh for mesh in self.meshes if mesh.name == sharding.mesh), None)
        dims = list(sharding.dims) + [DimSharding()] * (type.rank - len(sharding.dims))
        sizes = [*map(str, type.shape), *["?"] * (len(dims) - type.rank)]
        dim_texts = [f"{n}{self._dim(dim, mesh)}" for n, dim in zip(sizes, dims, strict=True)]
        text = f"{type.dtype}[{', '.join(dim_texts)}]"
        is_shown = text != str(type)
        if sharding.replicated:
            text += f" replicated({self._axes(sharding.replicated, mesh)})"
        if sharding.unreduced or sharding.reduction != "add":
            how = "" if sharding.reduction == "add" else f"[{sharding.reduction}]"
            text += f" unreduced{how}({self._axes(sharding.unreduced, mesh)})"
        is_shown = is_shown or outer or text[-1] != "]"
        first = self.meshes[0].name if self.meshes else None
        return (
            text
            if is_shown and sharding.mesh == first
            else f"{text} on @{format_name(sharding.mesh)}"
        )

    def _dim(self, dim: DimSharding, mesh: Mesh | None) -> str:
        priority = "" if dim.priority is None else f" p{dim.priority}"
        if not dim.axes:
            return f"@-{priority}" if not dim.open else f"@?{priority}" if priority else ""
        axes = self._axes(dim.axes, mesh)
        axes_text = axes if len(dim.axes) == 1 else f"({axes})"
        return f"@{axes_text}{'?' if dim.open else ''}{priority}"

    def _axes(self, axes: Axes, mesh: Mesh | None) -> str:
        return ", ".join(format_axis(axis, mesh) for axis in axes)

    def attr(self, key: str, attr: Attr) -> str:
        match attr:
            case tuple() | list():
                return f"[{', '.join(self.attr(key, item) for item in attr)}]"
            case Axis():
                return format_axis(
                    attr,
                    find_mesh_with_axis(attr.name, self.meshes) if key in AXIS_ATTRIBUTES else None,
                )
            case Symbol():
                return format_symbol(attr)
            case str():
                return quote_string(attr)
            case Dense():
                return format_dense(attr)
            case np.generic():
                return self.attr(key, attr.item())
            case bool() | int() | float() | complex():
                return format_number(attr)
            case _:
                return quote_string(repr(attr))


def find_mesh_with_axis(axis: str, meshes: tuple[Mesh, ...]) -> Mesh | None:
    """Return the first mesh that has an axis of this name."""
    return next((mesh for mesh in meshes if axis in mesh.sizes), None)


def format_axis(axis: Axis, mesh: Mesh | None) -> str:
    """Return `data` for a full axis of the mesh, else `data:(pre)size`."""
    name = format_word(axis.name)
    if mesh and axis.name in mesh.sizes and axis.is_full(mesh):
        return name
    return f"{name}:({axis.pre}){axis.size}"


def _append_global_types(local: list[str], outer: list[str]) -> list[str]:
    return [f"{text} of {outer[i]}" if i < len(outer) else text for i, text in enumerate(local)]


def _terminator(word: str, block: Block, names: Mapping[Value, str]) -> str:
    return " ".join([word, ", ".join(names[v] for v in block.returns)]).rstrip()


class _ValueTexts(dict[Value, str]):
    """The text of each value; a value without a definition gets a name on first use."""

    def __init__(self) -> None:
        self.names = UniqueNames()

    def __missing__(self, value: Value) -> str:
        self[value] = text = f"%{format_name(self.names.fresh(value.name))}"
        return text


def unique_names(function: Function) -> Mapping[Value, str]:
    """Return the unique text of each value of a function, including `%`.

    The first value with a name keeps it; generated names give way to it.
    """
    spellings, nameless = _ValueTexts(), []
    taken: set[str] = set()
    for value in _definitions(function.body):
        if not value.name or value.name in taken:
            nameless.append(value)
        elif value not in spellings:
            taken.add(value.name)
            spellings[value] = f"%{format_name(value.name)}"
    spellings.names = UniqueNames(sorted(taken))
    for value in nameless:
        spellings[value]
    return spellings


def _definitions(block: Block) -> Iterator[Value]:
    yield from block.params
    for op in block.ops:
        yield from op.results
        for inner in op.blocks:
            yield from _definitions(inner)


ir_text.register(Module, print_module)


@ir_text.register
def _function_text(function: Function, *, locations: bool = False) -> str:
    return "\n".join(Printer((), locations).function(function))


@ir_text.register
def _block_text(block: Block, *, locations: bool = False) -> str:
    return "\n".join(Printer((), locations).block(block))


@ir_text.register
def _op_text(op: Op, *, locations: bool = False) -> str:
    return "\n".join(Printer((), locations).operation(op))


@ir_text.register
def _value_text(value: Value, *, locations: bool = False) -> str:
    return Printer((), locations).param(value, _ValueTexts())


@ir_text.register
def _global_tensor_text(tensor: GlobalTensor, *, locations: bool = False) -> str:
    return Printer((), locations).global_type(tensor)


@ir_text.register
def _spmd_interface_text(interface: SpmdInterface, *, locations: bool = False) -> str:
    printer = Printer((), locations)
    params, results = (
        ", ".join(map(printer.global_type, side)) for side in (interface.params, interface.results)
    )
    return f"({params}) -> ({results})"
