"""Lowering rules for elementwise and fused operations."""

from collections.abc import Sequence
from functools import cache

from shardir.backends.cpu.native.data import Context, Phase, Rule, View
from shardir.backends.cpu.native.llvm.text import Function, Module
from shardir.backends.cpu.native.loops.axes import Array, Axis, arrays_of
from shardir.backends.cpu.native.loops.body import APPLY, Body, Walk, walk_of
from shardir.backends.cpu.native.loops.maps import lanes_of, phases_of_map
from shardir.backends.cpu.native.loops.reductions import phases_of_reduction
from shardir.backends.cpu.native.loops.stages import stages_of
from shardir.backends.cpu.native.loops.straight import straightened
from shardir.backends.cpu.native.vector import inline, registers
from shardir.ir import Op
from shardir.ops.fused import REDUCTIONS, fused, is_pointwise
from shardir.opset import OPS, Attr


def rule(
    op: Op, operands: Sequence[View], results: Sequence[View], context: Context
) -> Sequence[Phase] | None:
    """Return the phases of an operation; `None` if it has a step without vector instructions."""
    walk = walk_of(op)
    if not is_supported(walk.body):
        return None
    if not all(walk.nest.extents):
        return None if walk.nest.reduced else []
    arrays, axes = arrays_of(walk, operands, results)
    label = op.why if op.spec is fused else op.name
    counted = len(walk.counted)
    written = range(len(walk.operands), len(walk.operands) + len(results))
    lanes = lanes_of(walk.body, context.machine)
    transposed = straightened(axes, arrays, written, lanes, context)
    phases = _walked(walk, transposed.axes, transposed.arrays, counted, context, label)
    return [*transposed.before, *phases, *transposed.after]


def _walked(
    walk: Walk,
    axes: Sequence[Axis],
    arrays: Sequence[Array],
    counted: int,
    context: Context,
    label: str,
) -> list[Phase]:
    if not walk.body.reductions:
        return phases_of_map(axes, walk.body, arrays, counted, context, label)
    stages = stages_of(
        walk.body,
        [frozenset(lie) for lie in walk.operand_lies],
        walk.counted,
        [frozenset(lie) for lie in walk.result_lies],
        walk.nest.reduced,
    )
    return phases_of_reduction(axes, stages, arrays, counted, context, label)


def is_supported(body: Body) -> bool:
    """Return whether every step has instructions."""
    for step in body.steps:
        if step.kind == APPLY:
            dtypes = tuple(body.steps[i].dtype for i in step.operands)
            if not has_instructions(step.op, step.attrs, dtypes, step.dtype):
                return False
    return True


def accepts(op: Op) -> bool:
    """Return whether a fused group may contain an operation, for `passes.fuse`."""
    dtypes = tuple(value.type.dtype for value in op.operands)
    if op.spec in REDUCTIONS:
        return "key" not in dtypes
    if not is_pointwise(op.spec):
        return False
    return has_instructions(op.name, tuple(op.attrs.items()), dtypes, op.result.type.dtype)


@cache
def has_instructions(
    op: str, attrs: tuple[tuple[str, Attr], ...], dtypes: tuple[str, ...], result: str
) -> bool:
    """Return whether an elementwise operation has vector instructions for these element types."""
    f = Function(Module(), "probe", [])
    held = [registers.constant(f, 1, dtype, 8) for dtype in dtypes]
    return inline.emit(f, op, dict(attrs), held, dtypes, result) is not None


RULES: dict[str, Rule] = {
    **{name: rule for name, spec in OPS.items() if is_pointwise(spec)},
    fused.name: rule,
    "iota": rule,
    **{spec.name: rule for spec in REDUCTIONS},
}
"""Rules by the name of the operation."""
