"""Strategies of operations: the placements of operands and results with which an operation runs.

An operation runs with each mesh axis along at most one factor of its rule. A sharded factor that is
reduced leaves partial sums, and an operation that is linear in some operands can also take partial
sums of them.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from shardir import ops
from shardir.cost.op_cost import flops_of
from shardir.ir.module import Op
from shardir.op_rules.factors import FactorKind, FactorRule, TensorFactors
from shardir.op_rules.linearity import commuting_groups
from shardir.passes.planning.programs.placements import PARTIAL, UNSHARDED, Placement
from shardir.passes.resharding.align import (
    partitioning_rule,
    pending_reduction,
    shardable_factors,
)

REDUCTIONS = ("add", "max", "min")


@dataclass(frozen=True, slots=True)
class Strategy:
    """Placements of the operands and results of an operation, and the flops of each device, which
    count for matrix products and convolutions only."""

    operands: tuple[Placement, ...]
    results: tuple[Placement, ...]
    flops: int


def placements_of(
    shape: Sequence[int], sizes: Sequence[int], *, even: bool, partial: bool = False
) -> list[Placement]:
    """Return the placements of a value, with `partial` also those of partial sums; those of an
    argument are `even`, all of its shards have one size."""
    found = []
    least = PARTIAL if partial else UNSHARDED
    for places in product(range(least, len(shape)), repeat=len(sizes)):
        parts = [1] * len(shape)
        for place, size in zip(places, sizes, strict=True):
            if place >= 0:
                parts[place] *= size
        if all(n % p == 0 if even else n >= p for n, p in zip(shape, parts, strict=True) if p > 1):
            found.append(places)
    return found


def strategies_of(
    op: Op, sizes: Sequence[int], partial: Sequence[Collection[int]]
) -> list[Strategy] | None:
    """Return the strategies of an operation on mesh axes of the given sizes, `None` if its rule
    does not determine them.

    `partial` has for each operand the axes over which it may be a partial sum. Only sums with one
    of these operands are delayed.
    """
    if op.spec.collective:
        return None
    rule = partitioning_rule(op)
    if rule is None:
        return None
    factors = [i for i in shardable_factors(op, rule) if rule.factors[i].size > 1]
    groups = sorted({group for kind in REDUCTIONS for group in commuting_groups(op, kind)})
    choices: list[list[tuple[int, ...] | int | None]] = [
        [None, *factors, *(group for group in groups if any(axis in partial[i] for i in group))]
        for axis in range(len(sizes))
    ]
    found: dict[Strategy, None] = {}
    for chosen in product(*choices):
        strategy = _strategy(op, rule, chosen, sizes)
        if strategy is not None:
            found[strategy] = None
    return list(found)


def _strategy(
    op: Op, rule: FactorRule, chosen: Sequence[tuple[int, ...] | int | None], sizes: Sequence[int]
) -> Strategy | None:
    """Return the strategy with the factor, or the group of partial operands, of each axis."""
    parts = [1] * len(rule.factors)
    for choice, size in zip(chosen, sizes, strict=True):
        if isinstance(choice, int):
            parts[choice] *= size
    if any(1 < p > factor.size for p, factor in zip(parts, rule.factors, strict=True)):
        return None
    placed = []
    count = len(rule.operands)
    for number, mapping in enumerate(rule.tensors):
        places = []
        for choice in chosen:
            if isinstance(choice, tuple):
                is_partial = number >= count or number in choice
                places.append(PARTIAL if is_partial else UNSHARDED)
                continue
            place = UNSHARDED if choice is None else _dim_of(mapping, choice, rule, parts)
            if place is None:
                return None
            if (
                number >= count
                and choice is not None
                and rule.factors[choice].kind is FactorKind.REDUCE
                and pending_reduction(op, rule) is not None
            ):
                place = PARTIAL
            places.append(place)
        placed.append(tuple(places))
    return Strategy(tuple(placed[:count]), tuple(placed[count:]), _flops(op, rule, parts))


def _dim_of(
    mapping: TensorFactors, factor: int, rule: FactorRule, parts: Sequence[int]
) -> int | None:
    """Return the dimension of a tensor that a sharded factor shards, `UNSHARDED` if it has none;
    `None` if its shards are not contiguous."""
    for dim, factors in enumerate(mapping):
        if factor in factors:
            major = factors[: factors.index(factor)]
            if any(rule.factors[i].size != parts[i] for i in major):
                return None
            return dim
    return UNSHARDED


def _flops(op: Op, rule: FactorRule, parts: Sequence[int]) -> int:
    """Return the flops of each device."""
    if op.spec not in (ops.dot, ops.convolution):
        return 0
    whole = prod(factor.size for factor in rule.factors)
    if not whole:
        return 0
    local = prod(-(-factor.size // p) for factor, p in zip(rule.factors, parts, strict=True))
    return flops_of(op) * local // whole
