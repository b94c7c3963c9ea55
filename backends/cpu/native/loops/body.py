"""The computation of a loop nest: a block as numbered steps, without shapes.

Broadcasts and reshapes vanish, since a value is identified by the axes along which it varies. The
steps are the same for all shapes, so that their text can name a kernel.
"""

from collections.abc import Sequence, Set
from typing import NamedTuple

from shardir.ir import Block, Op, Value
from shardir.ops.create import constant, iota
from shardir.ops.fused import REDUCTIONS, Lie, Nest, fused, needed, nest_of, wide
from shardir.ops.shape import broadcast, reshape
from shardir.opset import Attr

ARRAY, CONSTANT, IOTA, REDUCE, APPLY = "array", "constant", "iota", "reduce", "apply"


class Step(NamedTuple):
    """A value: an element of array `number`, a constant, iota index `number`, a reduction, or an
    elementwise operation `op` on earlier values."""

    kind: str
    dtype: str
    op: str = ""
    operands: tuple[int, ...] = ()
    attrs: tuple[tuple[str, Attr], ...] = ()
    number: int = 0


class Body(NamedTuple):
    """Steps in order, and the indices of those that are results."""

    steps: tuple[Step, ...]
    results: tuple[int, ...]

    def key(self) -> str:
        """Return a text that identifies the body."""
        return f"{self.steps!r}->{self.results!r}"

    @property
    def reductions(self) -> tuple[int, ...]:
        """The steps that are reductions."""
        return tuple(i for i, step in enumerate(self.steps) if step.kind == REDUCE)


def block_of(op: Op) -> Block:
    """Return the block of a fused operation; of any other operation a block with that operation."""
    if op.spec is fused:
        return op.blocks[0]
    return Block(tuple(dict.fromkeys(op.operands)), (op,), op.results)


class Walk(NamedTuple):
    """An operation as a loop nest and its body: the operand of each array, the axis of each iota
    index."""

    nest: Nest
    body: Body
    operands: tuple[int, ...]
    operand_lies: tuple[Lie, ...]
    result_lies: tuple[Lie, ...]
    counted: tuple[int, ...]


def walk_of(op: Op) -> Walk:
    """Return the computation of an operation as steps in a loop nest."""
    block = block_of(op)
    nest = nest_of(block)
    live = needed(block)
    params = [param for param in block.params if param in live]
    if op.spec is fused:
        operands = tuple(block.params.index(param) for param in params)
    else:
        operands = tuple(op.operands.index(param) for param in params)
    body, counted = _body(block, params, nest, live)
    return Walk(
        nest,
        body,
        operands,
        tuple(nest.lies[param] for param in params),
        tuple(nest.lies[value] for value in block.returns),
        counted,
    )


def _body(
    block: Block, params: Sequence[Value], nest: Nest, live: Set[Value]
) -> tuple[Body, tuple[int, ...]]:
    number: dict[Value, int] = {}
    steps: list[Step] = []
    counted: list[int] = []

    known: dict[Step, int] = {}

    def add(value: Value, step: Step) -> None:
        """Append a step; a step that is already computed is reused, since shapes do not matter."""
        if step.kind in (CONSTANT, IOTA) or step not in known:
            known[step] = len(steps)
            steps.append(step)
        number[value] = known[step]

    for i, param in enumerate(params):
        add(param, Step(ARRAY, param.type.dtype, number=i))
    for op in block.ops:
        if not any(v in live for v in op.results):
            continue
        result = op.result
        operands = tuple(number[v] for v in op.operands)
        reduces = op.spec in REDUCTIONS and len(nest.lies[op.operands[0]]) > len(nest.lies[result])
        if op.spec in (broadcast, reshape) or (op.spec in REDUCTIONS and not reduces):
            number[result] = operands[0]
        elif op.spec is constant:
            # Zeros compare equal whatever their signs, but kernels of equal steps are shared.
            value_text = ("told", repr(op.attrs["value"]))
            add(result, Step(CONSTANT, result.type.dtype, attrs=(*op.attrs.items(), value_text)))
        elif op.spec is iota:
            if result.type.shape[op.attrs["dim"]] == 1:
                add(result, Step(CONSTANT, result.type.dtype, attrs=(("value", 0),)))
                continue
            place = wide(result.type).index(op.attrs["dim"])
            add(result, Step(IOTA, result.type.dtype, number=len(counted)))
            counted.append(nest.lies[result][place])
        else:
            kind, attrs = (REDUCE, {}) if reduces else (APPLY, op.attrs)
            made = tuple(sorted(attrs.items()))
            add(result, Step(kind, result.type.dtype, op.name, operands, made))
    return Body(tuple(steps), tuple(number[v] for v in block.returns)), tuple(counted)
