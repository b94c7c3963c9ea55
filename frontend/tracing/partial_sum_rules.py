"""Rules for the unreduced and the reduced axes in types.

A result is unreduced along the unreduced axes of its operands if the operation is linear in these.
In strict mode, only operations with a rule in JAX accept unreduced operands, and a factor of an
unreduced value must be reduced along the same axes: its gradient is unreduced.
"""

from shardir import ops
from shardir.frontend.shardings.partition_spec import UNCONSTRAINED, PartitionSpec
from shardir.frontend.tracing.sharding_type import (
    RESHARD,
    ShardingType,
    TypeConflictError,
    Types,
    describe,
    quote,
)
from shardir.ir.module import Op
from shardir.ir.types import INEXACT
from shardir.op_rules.linearity import linear_groups

_CONTRACTIONS = (ops.dot, ops.convolution)
"""Operations whose result has no reduced axes: they sum products of an operand."""

MOVES_OF_SUMS = (ops.transpose, ops.reshape, ops.convert)
"""Operations whose result may be unreduced along the axes along which their operand may be."""

_OF_PARTIAL_SUMS = (
    ops.add, ops.mul, ops.sum_, ops.select,
    ops.broadcast, ops.concatenate, ops.convert, ops.dynamic_update_slice, ops.pad, ops.reshape,
    ops.slice_, ops.stop_gradient, ops.transpose,
)  # fmt: skip
"""Linear operations that accept unreduced operands in strict mode, as in JAX."""


def infer_unreduced(op: Op, types: Types) -> frozenset[str]:
    """Return the unreduced axes of the results: those of a group in which `op` is linear."""
    pending = {i: type.unreduced for i, type in enumerate(types) if type and type.unreduced}
    if not pending:
        return frozenset()
    axes = next(iter(pending.values()))
    for group in linear_groups(op):
        if set(group) == set(pending) and all(each == axes for each in pending.values()):
            return axes
    operand = next(iter(pending))
    raise TypeConflictError(
        f"{describe(op, operand, types)} holds partial sums over {_quote_set(axes)}, "
        f"and {op.name} is not linear in its unreduced operands alone; {RESHARD}"
    )


def check_unreduced(op: Op, types: Types) -> None:
    """Check that strict mode has a rule for the unreduced operands of an operation."""
    pending = [i for i, type in enumerate(types) if type and type.unreduced]
    if not pending:
        return
    axes = infer_unreduced(op, types)
    holds = f"{describe(op, pending[0], types)} holds partial sums over {_quote_set(axes)}, "
    if op.spec not in _OF_PARTIAL_SUMS:
        raise TypeConflictError(
            f"{holds}and {op.name} does not accept them in strict mode; {RESHARD}"
        )
    if op.spec is ops.mul:
        factor = types[1 - pending[0]]
        if factor is None or factor.reduced != axes:
            raise TypeConflictError(
                f"{holds}and {describe(op, 1 - pending[0], types)} is not reduced over "
                "them, so its gradient would be a sum over devices; reshard it to a PartitionSpec "
                f"with reduced={{{', '.join(map(repr, sorted(axes)))}}}, or reshard the partial "
                "sums first (sharding.reshard)"
            )


def infer_reduced(op: Op, types: Types) -> frozenset[str]:
    """Return the reduced axes of the results: those of all operands.

    The results of contractions and of operations on partial sums have none.
    """
    if op.spec in _CONTRACTIONS:
        return frozenset()
    if op.spec is ops.mul and any(type is not None and type.unreduced for type in types):
        return frozenset()
    known = [
        (i, type)
        for i, type in enumerate(types)
        if type is not None and type.dims and op.operands[i].type.dtype in INEXACT
    ]
    for i, type in known[1:]:
        first, expected = known[0]
        if type.reduced != expected.reduced:
            raise TypeConflictError(
                f"{describe(op, first, types)} and {describe(op, i, types)} have "
                f"different reduced axes, so the gradients of {op.name} would have different sums; "
                "reshard one of them (sharding.reshard)"
            )
    return next((type.reduced for type in types if type is not None and type.reduced), frozenset())


def find_new_dims(op: Op, types: Types) -> frozenset[int]:
    """Return the dimensions of a result that no operand with reduced axes has, such as those of the
    indices in a lookup."""
    rule = op.factors()
    if rule is None:
        return frozenset()
    known = {
        factor
        for type, mapping in zip(types, rule.operands, strict=True)
        if type is not None and type.reduced
        for factors in mapping
        for factor in factors
    }
    return frozenset(dim for dim, each in enumerate(rule.results[0]) if known.isdisjoint(each))


def copied_axes(
    type: ShardingType, spec: PartitionSpec, new_dims: frozenset[int]
) -> frozenset[str]:
    """Return the reduced axes of a result with the sharding `spec`: a device has one shard, and no
    copy, along an axis that shards a dimension of `new_dims`."""
    axes_of_dims = (spec.axes(dim) for dim in new_dims)
    return type.reduced.difference(*(axes for axes in axes_of_dims if axes is not UNCONSTRAINED))


def _quote_set(axes: frozenset[str]) -> str:
    return quote(tuple(sorted(axes)))
