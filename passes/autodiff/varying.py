"""Inference of varying manual axes (vma): the axes along which each value of a program may vary.

A value that enters sharded along an axis varies along it, and each operation declares the varying
axes of its results (`shardir.op_rules.vma`). Control flow adds two rules. A value that a loop
carries varies if it does anywhere on its edge. A value that is computed in a branch or an iteration
that only some devices along an axis execute varies along that axis, whatever its operands are.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from shardir import ops as specs
from shardir.cost.mesh_axes import crossed_axes
from shardir.ir.module import Block, Op, Value
from shardir.ir.operation import NOT_VARYING, Varying, Vma
from shardir.ir.sharding import Axes, Axis
from shardir.op_rules.vma import join_varying
from shardir.ops.control_flow.derivative_regions import argument_axes_of


def infer_varying_axes(
    block: Block, initial: Mapping[Value, Varying], axes: Axes, within: Varying = NOT_VARYING
) -> dict[Value, Varying]:
    """Return the axes along which each value of a block, and of nested blocks, may vary.

    `axes` are the manual axes around the block. `initial` holds the varying axes of parameters and
    of captured values; other values have none. Only some devices along `within` run the block.
    """
    result = dict(initial)
    extend_varying_axes(block.ops, result, axes, within)
    return result


def extend_varying_axes(
    ops: Sequence[Op], varying_axes: dict[Value, Varying], axes: Axes, within: Varying = NOT_VARYING
) -> None:
    """Add the varying axes of the results of operations to `varying_axes`; see `varying`."""
    _VaryingInference(varying_axes, axes).sweep(ops, within)


def vma_of(op: Op, operands: Sequence[Varying], axes: Axes) -> Vma:
    """Apply the rule of an operation without blocks.

    Communication along a sub-axis of one of the `axes`, among groups of devices, leaves values that
    vary along the complete axis.
    """
    rule = op.spec.vma or join_varying
    named = crossed_axes(op.attrs)
    if not op.spec.spmd or all(axis in axes for axis in named):
        return rule(operands, **op.rule_arguments)
    parts = [axis for axis in named if any(axis != a and a.overlaps(axis) for a in axes)]
    complete_axes = frozenset(a for a in axes if any(a.overlaps(axis) for axis in parts))
    vma = rule([operand | complete_axes for operand in operands], **op.rule_arguments)
    gone = frozenset(parts)
    return Vma(tuple(each - gone for each in vma.operands), vma.results - gone)


def dependent_values(block: Block, params: Sequence[Value]) -> set[Value]:
    """Return the values of a block that depend on any of the given parameters."""
    mark = frozenset((Axis("dependent", 1, 1),))
    varying_axes = infer_varying_axes(block, dict.fromkeys(params, mark), ())
    return {value for value, marks in varying_axes.items() if marks >= mark}


def union_of_varying_axes(
    values: Sequence[Value], varying_axes: Mapping[Value, Varying]
) -> Varying:
    """Return the axes along which any of the values varies."""
    return NOT_VARYING.union(*(varying_axes.get(value, NOT_VARYING) for value in values))


def divergent_axes(op: Op, varying_axes: Mapping[Value, Varying]) -> Varying:
    """Return the axes along which devices take different paths through the blocks of an
    operation."""
    if op.spec is specs.case:
        return union_of_varying_axes(op.operands[:1], varying_axes)
    return (
        union_of_varying_axes(op.blocks[0].returns, varying_axes)
        if op.spec is specs.while_
        else NOT_VARYING
    )


class _VaryingInference:
    """Inference of varying axes, which extends a mapping to a fixed point."""

    def __init__(self, varying_axes: dict[Value, Varying], axes: Axes) -> None:
        self.found, self.axes = varying_axes, axes

    def sweep(self, ops: Sequence[Op], within: Varying) -> None:
        varying_axes = self.found
        for op in ops:
            if op.spec is specs.manual_computation:
                self.manual(op, within)
            elif op.edges():
                self.infer_edges(op, within)
            elif op.blocks:
                self.infer_region(op, within)
            else:
                varies = [varying_axes.get(value, NOT_VARYING) for value in op.operands]
                result_axes = vma_of(op, varies, self.axes).results
                varying_axes.update(dict.fromkeys(op.results, result_axes | within))

    def infer_edges(self, op: Op, within: Varying) -> None:
        """Infer the values of the edges into, around and out of blocks."""
        varying_axes = self.found
        if op.spec in (specs.custom_jvp, specs.custom_vjp):
            params = op.blocks[0].params
            for param, axes in zip(params, argument_axes_of(op), strict=True):
                varying_axes[param] = varying_axes.get(param, NOT_VARYING) | axes & set(self.axes)
        watched = (*op.results, *chain.from_iterable(block.params for block in op.blocks))
        before = None
        while True:
            here = within | divergent_axes(op, varying_axes)
            for edge in op.edges():
                target_axes = (
                    union_of_varying_axes((*edge.sources, *edge.targets), varying_axes) | here
                )
                varying_axes.update(dict.fromkeys(edge.targets, target_axes))
            for block in op.blocks:
                self.sweep(block.ops, here)
            now = (divergent_axes(op, varying_axes), [varying_axes.get(value) for value in watched])
            if now == before:
                return
            before = now

    def infer_region(self, op: Op, within: Varying) -> None:
        """Infer any other operation with blocks: its results vary along the axes of all values it
        uses."""
        result_axes = union_of_varying_axes(tuple(op.uses()), self.found) | within
        for block in op.blocks:
            self.found.update(dict.fromkeys(block.params, result_axes))
            self.sweep(block.ops, within)
        self.found.update(dict.fromkeys(op.results, result_axes))

    def manual(self, op: Op, within: Varying) -> None:
        (body,) = op.blocks
        varying_axes, own = self.found, op.attrs["axes"]
        for param, value, dim_axes in zip(
            body.params, op.operands, op.attrs["in_axes"], strict=True
        ):
            varying_axes[param] = (
                varying_axes.get(value, NOT_VARYING) | sharding_axes(dim_axes) | within
            )
        _VaryingInference(varying_axes, (*self.axes, *own)).sweep(body.ops, within)
        for result, value in zip(op.results, body.returns, strict=True):
            varying_axes[result] = varying_axes.get(value, NOT_VARYING) - frozenset(own)


def sharding_axes(dim_axes: Iterable[Axes]) -> Varying:
    """Return the axes that shard a tensor, from those of each dimension."""
    return frozenset(axis for dim in dim_axes for axis in dim)
