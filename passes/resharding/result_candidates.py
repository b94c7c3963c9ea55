"""Candidate shardings of the result of an operation, and the cost of the reshards each needs."""

from collections.abc import Iterator
from functools import lru_cache

from shardir.ir.module import Op
from shardir.ir.sharding import Axes, Sharding
from shardir.ir.sub_axes import append_axis, take_disjoint_prefix
from shardir.op_rules.factors import FactorKind, FactorRule
from shardir.passes.propagation.factor_projection import project_to_factors
from shardir.passes.resharding.align import (
    Alignment,
    align,
    can_shard_factor,
    partitioning_rule,
    pending_reduction,
    shardable_factors,
    sharding_of_factors,
)
from shardir.passes.resharding.cost import reshard_cost
from shardir.passes.resharding.layouts import (
    alignment_reshard_cost,
    cheapest_alignment,
)
from shardir.passes.resharding.uneven import paddable_factors, uneven_dims

MAX_TRIED_OPERANDS = 4
"""Maximum number of operands whose shardings are tried, in operand order."""


def operation_reshard_cost(op: Op, places: tuple[Sharding, ...]) -> tuple[int, int]:
    """Return bytes and collectives of the reshards of an operation whose tensors are sharded as
    `places`."""
    types = tuple(value.type for value in op.tensors)
    rule = partitioning_rule(op)
    if rule is None:
        # The results are computed unsharded, and to shard them sends nothing.
        costs = [
            reshard_cost(sharding, Sharding.fully_replicated(sharding.mesh, type.rank), type)
            for sharding, type in zip(places[: len(op.operands)], types, strict=False)
        ]
        return sum(c[0] for c in costs), sum(c[1] for c in costs)
    return alignment_reshard_cost(
        rule, _cheapest_alignment(op, rule, places), places, types, pending_reduction(op, rule)
    )


def has_conflict(op: Op, places: tuple[Sharding, ...]) -> bool:
    """Return whether data moves for an operation.

    If the operation leaves a pending reduction, only a factor that it reduces is in conflict: an
    operand shards the factor by other axes than the operation does. Otherwise the reduction is
    completed in place, since sharded gradients would have to be gathered in the next step.
    """
    rule = partitioning_rule(op)
    if rule is None:
        return False
    fitting = _cheapest_alignment(op, rule, places)
    count = len(op.operands)
    if fitting.pending and pending_reduction(op, rule) is not None:
        return _has_reduced_factor_conflict(rule, places[:count], fitting)
    return any(
        reshard_cost(sharding, there, value.type)[0]
        if i < count
        else reshard_cost(there, sharding, value.type)[0]
        for i, (value, sharding, there) in enumerate(
            zip(op.tensors, places, fitting.tensors, strict=True)
        )
    )


def _has_reduced_factor_conflict(
    rule: FactorRule, operands: tuple[Sharding, ...], fitting: Alignment
) -> bool:
    """Return whether an operand shards a reduced factor by other axes than the alignment does."""
    sizes = tuple(factor.size for factor in rule.factors)
    views = [project_to_factors(m, s, sizes) for m, s in zip(rule.operands, operands, strict=True)]
    return any(
        (axes := view.factor_shardings[i].axes) and axes != fitting.factor_axes[i]
        for i in rule.of_kind(FactorKind.REDUCE)
        for view in views
        if i in view.factor_shardings
    )


def _cheapest_alignment(op: Op, rule: FactorRule, places: tuple[Sharding, ...]) -> Alignment:
    types = tuple(value.type for value in op.tensors)
    odd = any(uneven_dims(p, t.shape) for p, t in zip(places, types, strict=True))
    padding = paddable_factors(op, rule) if odd else ()
    return cheapest_alignment(
        rule, places, types, shardable_factors(op, rule), padding, pending_reduction(op, rule)
    )


def result_candidates(
    op: Op, places: tuple[Sharding, ...], result: Sharding
) -> tuple[Sharding, ...]:
    """Return the shardings of the only result that the shardings of the operands suggest."""
    rule = partitioning_rule(op)
    return (
        ()
        if rule is None
        else _result_candidates(rule, places, result, shardable_factors(op, rule))
    )


@lru_cache(maxsize=1 << 12)
def _result_candidates(
    rule: FactorRule, places: tuple[Sharding, ...], result: Sharding, cuttable: tuple[int, ...]
) -> tuple[Sharding, ...]:
    sizes = tuple(factor.size for factor in rule.factors)
    operands = [project_to_factors(m, s, sizes) for m, s in zip(rule.operands, places, strict=True)]
    operand_axes = [
        {
            i: factor_sharding.axes
            for i, factor_sharding in view.factor_shardings.items()
            if factor_sharding.axes
        }
        for view in operands
    ]
    shared = [i for i in cuttable if rule.factors[i].kind is FactorKind.PASS]
    candidates: dict[Sharding, None] = {}
    for chosen in _factor_axes_candidates(operand_axes, shared, len(sizes)):
        factor_axes = [axes if i in cuttable else () for i, axes in enumerate(chosen)]
        if any(
            axes and not can_shard_factor(rule, factor_axes, i, axes)
            for i, axes in enumerate(factor_axes)
        ):
            continue
        led = tuple(
            sharding_of_factors(mapping, factor_axes, result.mesh) for mapping in rule.tensors
        )
        candidates[align(rule, led, cuttable).tensors[-1]] = None
    return tuple(candidates)


def _factor_axes_candidates(
    operand_axes: list[dict[int, Axes]], shared: list[int], count: int
) -> Iterator[list[Axes]]:
    """Yield axes of the factors: those of each operand extended by the others, and with one factor
    moved."""
    for leader in range(min(len(operand_axes), MAX_TRIED_OPERANDS)):
        order = (operand_axes[leader], *operand_axes[:leader], *operand_axes[leader + 1 :])
        for longer in (False, True):
            factor_axes: list[Axes] = [()] * count
            for factor_sharding in order:
                for i, axes in factor_sharding.items():
                    if factor_axes[i] and not longer:
                        continue
                    taken = [axis for other in factor_axes for axis in other]
                    for axis in take_disjoint_prefix(axes, taken):
                        factor_axes[i] = append_axis(factor_axes[i], axis)
            yield factor_axes
        for i, axes in operand_axes[leader].items():
            for other in shared:
                if other not in operand_axes[leader]:
                    moved: list[Axes] = [()] * count
                    for j, axes_of_factor in operand_axes[leader].items():
                        moved[j] = axes_of_factor
                    moved[i], moved[other] = (), axes
                    yield moved
