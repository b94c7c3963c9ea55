"""Cuts that do not divide what they cut.

A dimension of n positions in p pieces is stored in pieces of ceil(n / p): the last ones are
shorter, or empty, and what fills them up is padding, of which nothing is known. Where each
position of a loop is computed from the same position of the operands, padding makes padding.
Where a loop is folded up, `partition` puts the identity of the reduction in its place. Loops that
need more than that (positions that are exchanged, dimensions that walk several loops) are cut as
far as they divide.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from shardir.axes import dividing_prefix
from shardir.factors import FactorRule, Kind
from shardir.ir import Op
from shardir.opset import Attr, OpSpec
from shardir.passes.align import reduction_of
from shardir.placement import Dim, Sharding
from shardir.types import TensorType

MODES = ("pad", "replicate", "error")
"""What becomes of a cut that does not divide: it is padded, trimmed to what divides, or refused."""


def uneven_dims(sharding: Sharding | None, shape: Sequence[int]) -> tuple[int, ...]:
    """The dimensions that a sharding does not cut into even pieces."""
    if sharding is None:
        return ()
    return tuple(
        d
        for d, (dim, size) in enumerate(zip(sharding.dims, shape, strict=True))
        if dim.axes and size % dim.pieces
    )


def settled(sharding: Sharding, shape: Sequence[int], *, pads: bool) -> Sharding:
    """Closed, and without cuts and sums of nothing.

    Unless it `pads`, cuts that do not divide are trimmed to those that do.
    """
    if 0 in shape:
        sharding = replace(sharding, unreduced=(), reduction="add")
    dims = []
    for dim, size in zip(sharding.dims, shape, strict=True):
        axes = dim.axes if pads else dividing_prefix(dim.axes, size)
        dims.append(Dim(axes if size else (), open=False))
    return replace(sharding, dims=tuple(dims), replicated=())


def loops_that_pad(op: Op, rule: FactorRule) -> tuple[int, ...]:
    """The factors along which an operation can run in uneven pieces."""
    return _loops(
        op.spec,
        rule,
        tuple(value.type for value in op.operands),
        tuple(value.type for value in op.results),
        tuple(op.attrs.items()),
        reduction_of(op, rule) is not None,
    )


@lru_cache(maxsize=1 << 12)
def _loops(
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
        if factor.kind is Kind.PASS or (factor.kind is Kind.REDUCE and combines)
    }
    declared = spec.partition is not None and spec.partition.uneven is not None
    if spec.partition is not None and spec.partition.uneven is not None:
        result = results[0] if len(results) == 1 else results
        chosen = set(spec.partition.uneven(rule, *operands, result=result, **dict(attrs)))
    for type, mapping in zip((*operands, *results), rule.tensors, strict=True):
        for size, factors in zip(type.shape, mapping, strict=True):
            whole = len(factors) == 1 and rule.factors[factors[0]].size == size
            # A declaration may know how positions move, but not of loops over no positions.
            moves = declared and len(factors) == 1 and rule.factors[factors[0]].size > 1
            if not whole and not moves:
                chosen.difference_update(factors)
    return tuple(sorted(chosen))
