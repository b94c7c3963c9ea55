"""The computation of a loop nest: a block as numbered steps, without shapes.

Broadcasts and reshapes vanish, since a value is identified by the axes along which it varies. The
steps are the same for all shapes, so that their text can name a kernel.
"""

from collections.abc import Callable, Iterable, Sequence, Set
from typing import NamedTuple

from shardir.ir.module import Block, Op, Value
from shardir.ir.operation import Attr
from shardir.ops.control_flow.fused import (
    REDUCTIONS,
    FusedLoopNest,
    build_loop_nest,
    fused,
)
from shardir.ops.control_flow.loop_unification import (
    LoopMapping,
    live_values,
    non_unit_dims,
)
from shardir.ops.shape.create import constant, iota
from shardir.ops.shape.rearrangements import broadcast, reshape

ARRAY, CONSTANT, IOTA, REDUCE, APPLY = "array", "constant", "iota", "reduce", "apply"


class LoopStep(NamedTuple):
    """A value: an element of array `number`, a constant, iota index `number`, a reduction, or an
    elementwise operation `op` on earlier values."""

    kind: str
    dtype: str
    op: str = ""
    operands: tuple[int, ...] = ()
    attrs: tuple[tuple[str, Attr], ...] = ()
    number: int = 0


class LoopBody(NamedTuple):
    """Steps in order, and the indices of those that are results."""

    steps: tuple[LoopStep, ...]
    results: tuple[int, ...]

    def key(self) -> str:
        """Return a text that identifies the body."""
        return f"{self.steps!r}->{self.results!r}"

    @property
    def reductions(self) -> tuple[int, ...]:
        """The steps that are reductions."""
        return tuple(i for i, step in enumerate(self.steps) if step.kind == REDUCE)

    def required_steps(self, targets: Iterable[int], stops: Callable[[int], bool]) -> list[int]:
        """Return the targets and the steps that they need, in order, without operands of the steps
        at which the search `stops`."""
        found: set[int] = set()
        pending = list(targets)
        while pending:
            i = pending.pop()
            if i not in found:
                found.add(i)
                if not stops(i):
                    pending += self.steps[i].operands
        return sorted(found)


def fused_block(op: Op) -> Block:
    """Return the block of a fused operation; of any other operation a block with that operation."""
    if op.spec is fused:
        return op.blocks[0]
    return Block(tuple(dict.fromkeys(op.operands)), (op,), op.results)


class LoopNest(NamedTuple):
    """An operation as a loop nest and its body: the operand of each array, the axis of each iota
    index."""

    nest: FusedLoopNest
    body: LoopBody
    operands: tuple[int, ...]
    operand_lies: tuple[LoopMapping, ...]
    result_lies: tuple[LoopMapping, ...]
    counted: tuple[int, ...]


def loop_nest_of(op: Op) -> LoopNest:
    """Return the computation of an operation as steps in a loop nest."""
    block = fused_block(op)
    nest = build_loop_nest(block)
    live = live_values(block)
    params = [param for param in block.params if param in live]
    if op.spec is fused:
        operands = tuple(block.params.index(param) for param in params)
    else:
        operands = tuple(op.operands.index(param) for param in params)
    body, counted = _make_body(block, params, nest, live)
    return LoopNest(
        nest,
        body,
        operands,
        tuple(nest.mappings[param] for param in params),
        tuple(nest.mappings[value] for value in block.returns),
        counted,
    )


def _make_body(
    block: Block, params: Sequence[Value], nest: FusedLoopNest, live: Set[Value]
) -> tuple[LoopBody, tuple[int, ...]]:
    number: dict[Value, int] = {}
    steps: list[LoopStep] = []
    counted: list[int] = []

    known: dict[LoopStep, int] = {}

    def add(value: Value, step: LoopStep) -> None:
        """Append a step; a step that is already computed is reused, since shapes do not matter."""
        if step.kind in (CONSTANT, IOTA) or step not in known:
            known[step] = len(steps)
            steps.append(step)
        number[value] = known[step]

    for i, param in enumerate(params):
        add(param, LoopStep(ARRAY, param.type.dtype, number=i))
    for op in block.ops:
        if not any(v in live for v in op.results):
            continue
        result = op.result
        operands = tuple(number[v] for v in op.operands)
        reduces = op.spec in REDUCTIONS and len(nest.mappings[op.operands[0]]) > len(
            nest.mappings[result]
        )
        if op.spec in (broadcast, reshape) or (op.spec in REDUCTIONS and not reduces):
            number[result] = operands[0]
        elif op.spec is constant:
            # Zeros compare equal whatever their signs, but kernels of equal steps are shared.
            value_text = ("value_text", repr(op.attrs["value"]))
            add(
                result, LoopStep(CONSTANT, result.type.dtype, attrs=(*op.attrs.items(), value_text))
            )
        elif op.spec is iota:
            if result.type.shape[op.attrs["dim"]] == 1:
                add(result, LoopStep(CONSTANT, result.type.dtype, attrs=(("value", 0),)))
                continue
            place = non_unit_dims(result.type).index(op.attrs["dim"])
            add(result, LoopStep(IOTA, result.type.dtype, number=len(counted)))
            counted.append(nest.mappings[result][place])
        else:
            kind, attrs = (REDUCE, {}) if reduces else (APPLY, op.attrs)
            made = tuple(sorted(attrs.items()))
            add(result, LoopStep(kind, result.type.dtype, op.name, operands, made))
    return LoopBody(tuple(steps), tuple(number[v] for v in block.returns)), tuple(counted)
