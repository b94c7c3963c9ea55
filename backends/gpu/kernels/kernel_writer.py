"""Lines of a kernel: loads, computations and stores, with the names of the values."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from shardir.backends.gpu.dtypes import TRITON_TYPES
from shardir.backends.gpu.kernels.arithmetic import expression, needs_rounding, round_text
from shardir.backends.gpu.kernels.conversion import convert
from shardir.backends.gpu.kernels.group_layout import GroupLayout, needs_no_line
from shardir.backends.gpu.kernels.terms import KernelTerm, number_term, parenthesize
from shardir.backends.gpu.kernels.tile_reduction import reduce_tile
from shardir.backends.gpu.kernels.tile_sides import IndexVariables, TileSide
from shardir.ir.dtypes import NARROW_FLOATS
from shardir.ir.module import Block, Op, Value
from shardir.ops.control_flow.fused import REDUCTIONS
from shardir.ops.shape.create import constant, iota

MAX_BODY_LINE_CHARACTERS = 92
"""Maximum length of an unindented line, so that most indented lines fit into 100 characters."""


@dataclass(eq=False)
class KernelWriter:
    """Writes the body of one kernel.

    `terms` has the values that are defined at the current line; those of a loop body are dropped
    after the loop.
    """

    block: Block
    layout: GroupLayout
    names: Mapping[Value, str]
    sides: tuple[TileSide, ...]
    """Rows, then columns; or only one of them."""
    index_variables: IndexVariables
    index_dtype: str = "i32"
    """The element type of index variables."""
    terms: dict[Value, KernelTerm] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    makers: dict[Value, Op] = field(default_factory=dict)
    computed: set[Value] = field(default_factory=set)
    """Values that operations use, not only stores."""
    loaded: set[Value] = field(default_factory=set)

    def __post_init__(self) -> None:
        for op in self.block.ops:
            self.makers[op.result] = op
            self.computed.update(op.operands)

    def append_line(self, text: str) -> None:
        self.lines.append(text)

    @contextmanager
    def loop_body(self, head: str) -> Iterator[None]:
        """Write the lines of the context as the body of a loop."""
        lines, terms, known = self.lines, self.terms, self.index_variables.defined
        self.lines, self.terms, self.index_variables.defined = [], dict(terms), dict(known)
        yield
        body = self.lines
        self.lines, self.terms, self.index_variables.defined = lines, terms, known
        self.lines += [head, *(f"    {line}" for line in body)]

    def collect_needed(self, roots: Iterable[Value], through: bool) -> list[Value]:
        """Return the values to compute first, in order; across reductions only if `through`."""
        found: set[Value] = set()
        left = list(roots)
        while left:
            value = left.pop()
            if value in found or value in self.terms:
                continue
            found.add(value)
            op = self.makers.get(value)
            if op is not None and (through or not self.is_nontrivial_reduction(op)):
                left += op.operands
        return [value for value in self.block.values() if value in found]

    def is_nontrivial_reduction(self, op: Op) -> bool:
        """Return whether it is a reduction over axes with more than one element."""
        lies = self.layout.axes_of
        return op.spec in REDUCTIONS and lies[op.operands[0]] != lies[op.result]

    def emit(self, values: Sequence[Value]) -> None:
        """Write the loads, then the operations, of these values.

        Values that several rows or columns share, which the cache holds, are loaded where they are
        first used, to keep registers free until the reductions are done.
        """
        for value in values:
            if value not in self.makers and not self.is_shared(value):
                self.load(value)
        for value in values:
            if value in self.makers and value not in self.terms:
                self.compute(self.makers[value])
        for value in values:
            self.term(value)

    def term(self, value: Value) -> KernelTerm:
        """Return the term of a value; write its load if needed."""
        if value not in self.terms:
            op = self.makers.get(value)
            if op is None:
                self.load(value)
            elif op.spec is constant:
                self.terms[value] = number_term(op.attrs["value"], value.type.dtype)
            else:
                self.terms[value] = self.term(op.operands[0])
        return self.terms[value]

    def is_shared(self, value: Value) -> bool:
        """Return whether a parameter has only some of the axes, in a group with reductions."""
        layout = self.layout
        return bool(layout.reduced) and len(layout.strides[value]) < len(layout.extents)

    def load(self, value: Value) -> None:
        self.loaded.add(value)
        offset, spans = self.offset(value)
        mask = self.mask(spans)
        text = f"tl.load({self.names[value]}_ptr{offset}{f', {mask}' if mask else ''})"
        if value.type.dtype in NARROW_FLOATS:
            text = f"{text}.to(tl.float32)"
        self.define(value, text, spans)

    def define(self, value: Value, text: str, spans: frozenset[str]) -> None:
        """Write the line that defines a value; two lines if it is long and rounded."""
        line = f"{self.names[value]} = {text}"
        long, rounding, _ = text.rpartition(f".to({TRITON_TYPES[value.type.dtype]}).to(tl.float32)")
        if rounding and len(line) > MAX_BODY_LINE_CHARACTERS:
            self.append_line(f"{self.names[value]} = {long}")
            line = f"{self.names[value]} = {self.names[value]}{rounding}"
        self.append_line(line)
        self.terms[value] = KernelTerm(self.names[value], value.type.dtype, spans=spans)

    def compute(self, op: Op) -> None:
        """Write the line of an operation, if it needs one."""
        value = op.result
        if op.spec is iota:
            self.write_iota(op)
        elif self.is_nontrivial_reduction(op):
            x, side = self.term(op.operands[0]), self.reduced_side()
            text = reduce_tile(op, self.broadcast_to_tile(x), side.mask, self.axis(side))
            self.define(value, self.round_if_used(op, text), x.spans - side.spans)
        elif not needs_no_line(op) and op.spec not in REDUCTIONS:
            args = [self.term(operand) for operand in op.operands]
            spans = frozenset[str]().union(*(arg.spans for arg in args))
            self.define(value, self.round_if_used(op, expression(op, args)), spans)

    def round_if_used(self, op: Op, text: str) -> str:
        """Return the text rounded to the result's type, unless only stores use it: they round."""
        if needs_rounding(op) and op.result in self.computed:
            return round_text(text, op.result.type.dtype)
        return text

    def write_iota(self, op: Op) -> None:
        """Write an `iota`: the index variable of its dimension, converted to its type."""
        value = op.result
        offset, spans = self.offset(value)
        if not offset:
            self.terms[value] = number_term(0, value.type.dtype)
            return
        counter = parenthesize(offset.removeprefix(" + "))
        if value.type.dtype in NARROW_FLOATS and max(value.type.shape) <= 1 << 24:
            text = round_text(f"{counter}.to(tl.float32)", value.type.dtype)
        else:
            text = convert(KernelTerm(counter, self.index_dtype), value.type.dtype)
        self.define(value, text, spans)

    def offset(self, value: Value) -> tuple[str, frozenset[str]]:
        """Return the offset of a tensor's elements, such as ` + row * 64 + column`, and
        its sides.
        """
        text, spans = "", frozenset[str]()
        for side in self.sides:
            for run in self.layout.runs(value, side.axes):
                counter = self.index_variables.index_variable(side, run, self.lines)
                text += f" + {counter}" if run.stride == 1 else f" + {counter} * {run.stride}"
                spans |= side.spans
        return text, spans

    def mask(self, spans: frozenset[str]) -> str:
        """Return the bounds mask along some sides; empty if all elements are in bounds."""
        masks = [side.mask for side in self.sides if side.index in spans and side.mask]
        return " & ".join(masks)

    def store(self, value: Value, pointer: str) -> None:
        offset, spans = self.offset(value)
        mask = self.mask(spans)
        rest = f", {mask}" if mask else ""
        self.append_line(f"tl.store({pointer}{offset}, {self.term(value).text}{rest})")

    def reduced_side(self) -> TileSide:
        """Return the reduced side."""
        return next(side for side in self.sides if side.axes == self.layout.reduced_axes)

    def axis(self, side: TileSide) -> str:
        """Return the arguments of `tl.sum` for a side: its dimension, and `keep_dims`."""
        if len(self.shape) == 1:
            return "0"
        return "0, keep_dims=True" if side is self.sides[0] else "1, keep_dims=True"

    @property
    def shape(self) -> tuple[str, ...]:
        """Return the sizes of the tile, as names of the kernel's constants."""
        return tuple(side.block for side in self.sides if side.length > 1)

    @property
    def tile(self) -> str:
        return f"({', '.join(self.shape)}{',' * (len(self.shape) == 1)})"

    def broadcast_to_tile(self, term: KernelTerm) -> KernelTerm:
        """Return the term broadcast to the tile."""
        every = frozenset[str]().union(*(side.spans for side in self.sides))
        if term.spans == every:
            return term
        return KernelTerm(f"tl.broadcast_to({term.tensor}, {self.tile})", term.dtype, spans=every)
