"""The emitter: statements of one C++ program, and the names of its tensors.

Each value is a `poplar::Tensor` variable with the value's name. Views of tensors are free in
Poplar, so operations that only rearrange data become views.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from shardir.backends.emission import EmissionError
from shardir.backends.ipu.codegen.device_types import (
    ELEMENTS,
    NARROW_INTEGERS,
    element_of,
    initializer_text,
    literal_text,
    physical_type,
)
from shardir.backends.ipu.codegen.identifiers import Identifiers
from shardir.backends.ipu.codegen.line_wrapping import wrap_statement
from shardir.backends.ipu.codegen.multiply_add import MultiplyAdds
from shardir.ir.device_groups import device_groups
from shardir.ir.mesh import Mesh
from shardir.ir.module import Op, Value
from shardir.ir.sharding import Axes
from shardir.ir.types import TensorType
from shardir.text.printer import Printer

_RESHAPE_SUFFIX = re.compile(r"\.reshape\(\{[^{}]*\}\)$")
_BROADCAST_SUFFIX = re.compile(r"(?:\.broadcast\(\d+, \d+\))+$")
_UNIT_BROADCAST_SUFFIX = re.compile(r"(\.reshape\(\{1(?:, 1)*\}\))(?:\.broadcast\(\d+, \d+\))+$")


@dataclass
class ProgramEmitter:
    """The text of a program under construction.

    `sequence` is the C++ name of the `Sequence` to which operations are currently added.
    """

    mesh: Mesh
    printer: Printer
    strided: str = "ring"
    keeps_nan: bool = True
    """True if maxima and minima propagate NaN, which the device's instructions do not."""
    sequence: str = "step"
    lines: list[str] = field(default_factory=list)
    depth: int = 1
    names: Identifiers = field(default_factory=Identifiers)
    helpers: dict[str, None] = field(default_factory=dict)
    globals: dict[str, str] = field(default_factory=dict)
    """Names of the constants before the function that builds the graph, keyed by text."""
    texts: dict[Value, str] = field(default_factory=dict)
    scalars: dict[Value, bool | int | float] = field(default_factory=dict)
    """Values whose elements all equal one number, which expressions contain as constants."""
    roots: dict[Value, Value] = field(default_factory=dict)
    """For a value that is a view of another value's tensor, that value."""
    multi_root_views: set[Value] = field(default_factory=set)
    """Values that are views of several tensors."""
    spellings: dict[Value, str] = field(default_factory=dict)
    multiply_adds: MultiplyAdds = field(default_factory=MultiplyAdds)
    """Multiply-adds that are computed with one rounding."""
    preamble: list[str] = field(default_factory=list)
    """Statements at the beginning of the program."""
    preamble_names: dict[str, str] = field(default_factory=dict)
    """Names of the tensors of the preamble, by key."""

    def add(self, line: str) -> None:
        """Add a statement, broken if it is too long."""
        self.lines.extend(wrap_statement(line, "  " * self.depth))

    def comment(self, op: Op) -> None:
        """Add a comment with the IR of the operation that follows."""
        text = str(self.printer.op(op, self.spellings))
        if op.blocks:
            text += " { ... }"
        room = 97 - 2 * self.depth
        if len(text) > room:
            text = text[: room - 4] + " ..."
        self.lines.append(f"{'  ' * self.depth}// {text}")

    @contextmanager
    def use_sequence(self, sequence: str) -> Iterator[None]:
        """Add operations to another `Sequence` within the context."""
        before, self.sequence = self.sequence, sequence
        yield
        self.sequence = before

    @contextmanager
    def indent(self) -> Iterator[None]:
        """Indent lines added within the context."""
        self.depth += 1
        yield
        self.depth -= 1

    @contextmanager
    def open_block(self) -> Iterator[None]:
        """Put lines added within the context into a C++ block."""
        self.lines.append("  " * self.depth + "{")
        with self.indent():
            yield
        self.lines.append("  " * self.depth + "}")

    def use_helper(self, helper: str) -> str:
        """Record that the program needs a function of `helpers`, and return its name."""
        self.helpers[helper] = None
        return helper

    def text(self, value: Value) -> str:
        """Return the C++ expression of a value's tensor; create the tensor of a number at first
        use.
        """
        if value not in self.texts and value in self.scalars:
            made = self.constant(self.scalars[value], value.type.dtype)
            self.texts[value] = broadcast_view(made, (), (), value.type.shape)
        return self.texts[value]

    def label(self, value: Value) -> str:
        """Return the debug name of a tensor in Poplar: the value's name as a C++ literal."""
        return '"' + value.name.replace("\\", "\\\\").replace('"', '\\"') + '"'

    def unused_identifier(self, name: str) -> str:
        """Return an unused identifier."""
        return self.names.make_unused(name)

    def define(self, value: Value, expression: str, root: Value | None = None) -> None:
        """Bind a value to a new C++ variable; `root` is the value of which it is a view."""
        name = self.unused_identifier(value.name)
        self.add(f"Tensor {name} = {expression};")
        self.alias(value, name, root)

    def alias(self, value: Value, text: str, root: Value | None = None) -> None:
        """Bind a value to an existing C++ expression."""
        self.texts[value] = text
        if root is not None:
            self.roots[value] = self.roots.get(root, root)

    def temporary(self, name: str, expression: str) -> str:
        """Define a C++ variable for a tensor that is no value, and return its name."""
        fresh = self.unused_identifier(name)
        self.add(f"Tensor {fresh} = {expression};")
        return fresh

    def define_once(self, key: str, name: str, expression: str) -> str:
        """Return the name of a tensor computed once in the preamble, identified by `key`."""
        if key not in self.preamble_names:
            self.preamble_names[key] = self.unused_identifier(name)
            self.preamble.extend(
                wrap_statement(f"Tensor {self.preamble_names[key]} = {expression};", "  ")
            )
        return self.preamble_names[key]

    def variable_text(self, type: TensorType, label: str) -> str:
        """Return the expression of a new variable, mapped over all tiles."""
        shape = initializer_text(physical_type(type).shape)
        return f"{self.use_helper('variable')}(graph, {element_of(type).poplar}, {shape}, {label})"

    def scalar_text(self, value: object, dtype: str) -> str:
        """Return the expression of a scalar constant."""
        if dtype == "f16":
            bits = np.float16(str(value)).view(np.uint16)
            return f"{self.use_helper('half_number')}(graph, 0x{int(bits):04x})"
        held = ELEMENTS[dtype]
        text = literal_text(value, dtype)
        if dtype in NARROW_INTEGERS:
            wide = self.scalar_text(value, "i32")
            return f"popops::cast(graph, {wide}, {held.poplar}, {self.sequence})"
        return f"{self.use_helper('number')}<{held.cpp}>(graph, {held.poplar}, {text})"

    def constant(self, value: object, dtype: str) -> str:
        """Return the name of a scalar constant, which is created once."""
        text = literal_text(value, dtype)
        digits = re.sub(r"\W+", "_", text.split("::")[-1].removesuffix("()").rstrip("fu"))
        sign = "minus_" if text.startswith("-") else ""
        name = f"number_{sign}{digits.strip('_').removesuffix('_0')}"
        with self.use_sequence("step"):
            made = self.scalar_text(value, dtype)
        return self.define_once(f"number {text} {dtype}", name, made)

    def map_text(self, expression: str, tensors: Sequence[str], label: str) -> str:
        """Return the call that evaluates an expression for each element."""
        listed = ", ".join(_drop_broadcasts(tensors))
        return f"popops::map(graph, {expression}, {{{listed}}}, {self.sequence}, {label})"

    def cast_text(self, text: str, dtype: str, label: str) -> str:
        """Return the expression of a tensor converted to another element type of the device."""
        return f"popops::cast(graph, {text}, {ELEMENTS[dtype].poplar}, {self.sequence}, {label})"

    def groups(self, axes: Axes) -> tuple[tuple[int, ...], ...]:
        """Return the groups of replicas that differ only along the axes, in order of position."""
        return device_groups(self.mesh, axes)

    def refusal_error(self, op: Op, reason: str, fix: str) -> EmissionError:
        """Return the error for an operation that cannot be emitted."""
        return EmissionError.of(op, reason, fix)


def _drop_broadcasts(tensors: Sequence[str]) -> Sequence[str]:
    """Return operands of `popops::map` without the broadcasts that it does itself.

    It broadcasts as NumPy does, so one operand of the result's shape suffices. Poplibs fuses
    expressions over tensors of one shape and single elements, but not over explicitly broadcast
    tensors.
    """
    for spread, left in ((_BROADCAST_SUFFIX, ""), (_UNIT_BROADCAST_SUFFIX, r"\1")):
        bare = [spread.sub(left, text) for text in tensors]
        if any(before == after for before, after in zip(tensors, bare, strict=True)):
            return bare
    return tensors


def broadcast_view(text: str, shape: Sequence[int], dims: Sequence[int], to: Sequence[int]) -> str:
    """Return the view of a tensor of `shape` as one of shape `to`; its dimension i
    becomes dims[i].
    """
    aligned = [1] * len(to)
    for size, dim in zip(shape, dims, strict=True):
        aligned[dim] = size
    view = reshape_view(text, shape, aligned)
    for dim, (have, want) in enumerate(zip(aligned, to, strict=True)):
        if have != want:
            view += f".broadcast({want}, {dim})"
    return view


def reshape_view(text: str, shape: Sequence[int], to: Sequence[int]) -> str:
    """Return the view of a tensor of `shape` with another shape."""
    if tuple(shape) == tuple(to):
        return text
    seen = _RESHAPE_SUFFIX.sub("", text)
    return f"{seen}.reshape({initializer_text(to)})"


def shuffle_view(text: str, perm: Sequence[int]) -> str:
    """Return the view of a tensor with permuted dimensions."""
    same = list(perm) == sorted(perm)
    return text if same else f"{text}.dimShuffle({initializer_text(perm)})"
