"""Shardings that do not divide the dimensions that they shard.

A dimension of n positions in p shards is stored in shards of ceil(n / p) positions: the last ones
are shorter or empty and end with padding of undefined content. If an operation computes each
position of a factor from the same position of its operands, padding leads to padding only. Before a
reduction, `partition` overwrites the padding with the identity. Factors with other access patterns
(permuted positions, dimensions of several factors) are sharded only as far as the axes divide them.
"""

from dataclasses import replace
from functools import lru_cache

from shardir.ir.module import Op
from shardir.ir.operation import Attr, OpSpec
from shardir.ir.sharding import DimSharding, Sharding
from shardir.ir.sub_axes import take_dividing_prefix
from shardir.ir.types import TensorType
from shardir.op_rules.factors import FactorKind, FactorRule
from shardir.passes.resharding.align import pending_reduction

UNEVEN_MODES = ("pad", "replicate", "error")
"""Treatment of a sharding that does not divide: pad the dimension, replicate along the axes that do
not divide, or raise an error."""


@lru_cache(maxsize=1 << 14)
def uneven_dims(sharding: Sharding | None, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the dimensions that a sharding does not divide evenly."""
    if sharding is None:
        return ()
    return tuple(
        d
        for d, (dim, size) in enumerate(zip(sharding.dims, shape, strict=True))
        if size % dim.num_shards
    )


@lru_cache(maxsize=1 << 14)
def close_sharding(sharding: Sharding, shape: tuple[int, ...], *, pads: bool) -> Sharding:
    """Return the sharding closed, without axes on empty dimensions.

    Unless `pads`, axes that do not divide a dimension are trimmed to the prefix that does. An empty
    tensor has no pending reduction.
    """
    if 0 in shape:
        sharding = replace(sharding, unreduced=(), reduction="add")
    dims = []
    for dim, size in zip(sharding.dims, shape, strict=True):
        axes = dim.axes if pads else take_dividing_prefix(dim.axes, size)
        dims.append(DimSharding(axes if size else (), open=False))
    return Sharding(sharding.mesh, tuple(dims), (), sharding.unreduced, sharding.reduction)


def paddable_factors(op: Op, rule: FactorRule) -> tuple[int, ...]:
    """Return the factors along which an operation can run on uneven shards."""
    return _paddable_factors(
        op.spec,
        rule,
        tuple(value.type for value in op.operands),
        tuple(value.type for value in op.results),
        tuple(op.attrs.items()),
        pending_reduction(op, rule) is not None,
    )


@lru_cache(maxsize=1 << 12)
def _paddable_factors(
    spec: OpSpec,
    rule: FactorRule,
    operands: tuple[TensorType, ...],
    results: tuple[TensorType, ...],
    attrs: tuple[tuple[str, Attr], ...],
    combines: bool,
) -> tuple[int, ...]:
    chosen = {
        i
        for i, factor in enumerate(rule.factors)
        if factor.kind is FactorKind.PASS or (factor.kind is FactorKind.REDUCE and combines)
    }
    declared = spec.partition.uneven if spec.partition else None
    if declared is not None:
        result = results[0] if len(results) == 1 else results
        arguments = spec.rule_arguments(dict(attrs))
        chosen = set(declared(rule, *operands, result=result, **arguments))
    for type, mapping in zip((*operands, *results), rule.tensors, strict=True):
        for size, factors in zip(type.shape, mapping, strict=True):
            is_full_factor = len(factors) == 1 and rule.factors[factors[0]].size == size
            # A declared rule can handle permuted positions, but not factors without positions.
            moves = declared is not None and len(factors) == 1 and rule.factors[factors[0]].size > 1
            if not is_full_factor and not moves:
                chosen.difference_update(factors)
    return tuple(sorted(chosen))
