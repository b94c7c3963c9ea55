"""Lowering rules for elementwise and fused operations."""

from collections.abc import Sequence
from functools import cache

from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMModule
from shardir.backends.cpu.codegen.target import host_machine
from shardir.backends.cpu.kernel_api import BufferView, LoweringContext, Phase, Rule
from shardir.backends.cpu.kernels.elementwise.elementwise_loops import (
    choose_lanes,
    elementwise_phases,
)
from shardir.backends.cpu.kernels.elementwise.loop_axes import (
    LoopArray,
    LoopAxis,
    loop_arrays_and_axes,
)
from shardir.backends.cpu.kernels.elementwise.loop_body import (
    APPLY,
    LoopBody,
    LoopNest,
    loop_nest_of,
)
from shardir.backends.cpu.kernels.elementwise.reduction import reduction_phases
from shardir.backends.cpu.kernels.elementwise.reduction_passes import plan_passes
from shardir.backends.cpu.kernels.elementwise.transpose_operands import transpose_arrays
from shardir.backends.cpu.kernels.math import basic_rules, inline, registers
from shardir.ir.dtypes import KEYS
from shardir.ir.module import Op
from shardir.ir.operation import OPS, Attr
from shardir.ops.control_flow.fused import (
    REDUCTIONS,
    fused,
)
from shardir.ops.control_flow.loop_unification import is_pointwise


def lower_loop_nest(
    op: Op, operands: Sequence[BufferView], results: Sequence[BufferView], context: LoweringContext
) -> Sequence[Phase] | None:
    """Return the phases of an operation; `None` if it has a step without vector instructions."""
    walk = loop_nest_of(op)
    if not is_supported(walk.body):
        return None
    if not all(walk.nest.extents):
        return None if walk.nest.reduced_loops else []
    arrays, axes = loop_arrays_and_axes(walk, operands, results)
    label = op.why if op.spec is fused else op.name
    counted = len(walk.counted)
    written = range(len(walk.operands), len(walk.operands) + len(results))
    lanes = choose_lanes(walk.body, context.machine)
    transposed = transpose_arrays(axes, arrays, written, lanes, context)
    phases = _lower_walk(walk, transposed.axes, transposed.arrays, counted, context, label)
    return [*transposed.before, *phases, *transposed.after]


def _lower_walk(
    walk: LoopNest,
    axes: Sequence[LoopAxis],
    arrays: Sequence[LoopArray],
    counted: int,
    context: LoweringContext,
    label: str,
) -> list[Phase]:
    if not walk.body.reductions:
        return elementwise_phases(axes, walk.body, arrays, counted, context, label)
    stages = plan_passes(
        walk.body,
        [frozenset(lie) for lie in walk.operand_lies],
        walk.counted,
        [frozenset(lie) for lie in walk.result_lies],
        walk.nest.reduced_loops,
    )
    return reduction_phases(axes, stages, arrays, counted, context, label)


def is_supported(body: LoopBody) -> bool:
    """Return whether every step has instructions."""
    for step in body.steps:
        if step.kind == APPLY:
            dtypes = tuple(body.steps[i].dtype for i in step.operands)
            if not has_instructions(step.op, step.attrs, dtypes, step.dtype):
                return False
    return True


def has_kernel(op: Op) -> bool:
    """Return whether a fused group may contain an operation, for `passes.fusion.fuse`."""
    dtypes = tuple(value.type.dtype for value in op.operands)
    if op.spec in REDUCTIONS:
        return not set(KEYS).intersection(dtypes)
    if not is_pointwise(op.spec):
        return False
    return has_instructions(op.name, tuple(op.attrs.items()), dtypes, op.result.type.dtype)


@cache
def has_instructions(
    op: str, attrs: tuple[tuple[str, Attr], ...], dtypes: tuple[str, ...], result: str
) -> bool:
    """Return whether an elementwise operation has vector instructions for these element types.

    This does not depend on the machine: passes call it before a machine is chosen.
    """
    f = LLVMFunction(LLVMModule(host_machine()), "probe", [])
    held = [registers.splat_constant(f, 1, dtype, 8) for dtype in dtypes]
    return inline.emit_elementwise(f, op, dict(attrs), held, dtypes, result) is not None


# A rule of another package may follow after a program was compiled without it.
basic_rules.extension_observers.append(has_instructions.cache_clear)

RULES: dict[str, Rule] = {
    **{name: lower_loop_nest for name, spec in OPS.items() if is_pointwise(spec)},
    fused.name: lower_loop_nest,
    "iota": lower_loop_nest,
    **{spec.name: lower_loop_nest for spec in REDUCTIONS},
}
"""Rules by the name of the operation."""
