"""Masks that keep the derivative of a branch out of batch elements that take another branch.

A case with a batched index computes all branches for all elements. In the elements that take
another branch, a branch may divide by zero or by the zeros that stand for the residuals of other
branches; its derivative there is zero times infinity, which is NaN. Masks stop this derivative
where it would reach values that the elements share with other branches:

- `select(mask, x, stop_gradient(x))` equals `x`, and its derivative is zero outside of `mask`.
- An unbatched value has one derivative for all elements. It is masked where it is broadcast along
  the batch dimension. The operands that a product multiplies it by become zeros outside of the
  mask, so that the product need not be computed from broadcast copies.
- An unbatched value from which an operation computes another unbatched one has no derivative there
  if no element takes the branch.

The operations of a branch that compute the operands of a collective have no masks: its results also
depend on the values of elements, or of devices, that take another branch.

`simplify` replaces the selections by `x`.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import final

from shardir.ir.builder import Builder
from shardir.ir.module import Op, Value
from shardir.ir.types import INEXACT
from shardir.op_rules.batching import broadcast_batch_scalars, broadcast_over_batch
from shardir.op_rules.linearity import OperandGroups, linear_groups


def mask_derivative(b: Builder, mask: Value, x: Value) -> Value:
    """Return `x`, whose derivative is zero outside of `mask`, one element per batch element or a
    scalar."""
    if x.type.dtype not in INEXACT:
        return x
    result: Value = b.select(_broadcast_mask(b, mask, x), x, b.stop_gradient(x))
    return result


def _broadcast_mask(b: Builder, mask: Value, x: Value) -> Value:
    if mask.type.rank:
        return broadcast_batch_scalars(b, mask, x.type)
    if not x.type.rank:
        return mask
    result: Value = b.broadcast(mask, dims=(), result=x.type.with_dtype("bool"))
    return result


def communicates(op: Op) -> bool:
    """Return whether an operation, or a nested one, uses values of other devices or of other
    elements of a batch."""
    if op.spec.spmd and op.operands:
        return True
    return any(communicates(inner) for block in op.blocks for inner in block.ops)


@final
class BranchMask:
    """States which batch elements take a branch: `lanes` has one element for each.

    `any_lane`, whether any element does, masks unbatched values. If devices have different elements
    they communicate for it, so it is computed only if it is used. `b` is the builder of `lanes`;
    blocks that are built meanwhile may use its values.
    """

    def __init__(self, b: Builder, lanes: Value) -> None:
        self.lanes = lanes
        self._b = b
        self._any_lane: Value | None = None

    @property
    def any_lane(self) -> Value:
        if self._any_lane is None:
            why, self._b.why = self._b.why, "whether any has this branch"
            self._any_lane = self._b.any_(self.lanes, dims=(0,))
            self._b.why = why
        return self._any_lane


@dataclass(frozen=True, slots=True)
class MaskedOperands:
    """The operands of an operation in a branch: `new` replaces some of them, and
    `has_masked_result` states whether the derivative of the result needs the mask."""

    new: dict[Value, Value]
    has_masked_result: bool = False


def mask_operands(
    b: Builder,
    mask: BranchMask,
    op: Op,
    uses: Mapping[Value, Value],
    constants: set[Value],
) -> MaskedOperands:
    """Return the operands that keep the derivatives of unbatched operands out of the elements
    outside of `mask`.

    `uses` are the replacements of the values that `op` and its blocks use, with a batch dimension
    or not; `constants` are those of them without a derivative.
    """
    moving = {old: x for old, x in uses.items() if x.type.dtype in INEXACT}
    shared = {
        old: x for old, x in moving.items() if x.type.rank == old.type.rank and old not in constants
    }
    if not shared:
        return MaskedOperands({})
    lanes = mask.lanes
    groups = () if op.spec.elementwise else _linear_groups(op, moving)
    if len(groups) == 1:
        return MaskedOperands({}, has_masked_result=True)
    if groups:
        zeroed = {
            old: b.select(broadcast_batch_scalars(b, lanes, x.type), x, b.full(0, x.type))
            for old, x in moving.items()
            if x.type.rank > old.type.rank
        }
        return MaskedOperands(zeroed, has_masked_result=True)
    (size,) = lanes.type.shape
    return MaskedOperands(
        {
            old: mask_derivative(b, lanes, broadcast_over_batch(b, x, size))
            for old, x in shared.items()
        }
    )


def mask_unbatched_operands(
    b: Builder, mask: BranchMask, op: Op, uses: Mapping[Value, Value], constants: set[Value]
) -> dict[Value, Value]:
    """Return the operands of an operation that is computed once for all elements; they have no
    derivative if no element takes the branch."""
    moving = {old: x for old, x in uses.items() if x.type.dtype in INEXACT and old not in constants}
    if not moving or _linear_groups(op, moving):
        return {}
    return {old: mask_derivative(b, mask.any_lane, x) for old, x in moving.items()}


def _linear_groups(op: Op, moving: Collection[Value]) -> OperandGroups:
    """Return the groups of operands in which an operation is linear if they contain all operands
    in `moving`."""
    groups = linear_groups(op)
    covered = {op.operands[i] for group in groups for i in group}
    return groups if covered.issuperset(moving) else ()
