"""Choose the shardings with which an operation with incompatible operands runs.

OpenXLA Shardy follows the larger tensor, or the axes that most of the data has. Here that choice is
one of several candidates: in each of the others one tensor leads, extended by the axes that the
others can add. The shardings of all values are decided, so the cost of bringing the operands there
and the results away is exact, and the cheapest candidate is the best for the program. Fewer
collectives outweigh bytes as long as no more bytes are sent than by Shardy's choice, which wins
ties. A contraction computes more than with Shardy's choice only if a reduced factor is sharded in
one operand and unsharded in another: gathering may then send less than completing the reduction.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from math import prod

from shardir.cost.op_cost import sent_by
from shardir.ir.builder import Builder
from shardir.ir.mesh import Mesh
from shardir.ir.module import Op, Value
from shardir.ir.sharding import Axes, Sharding, count_positions
from shardir.ir.sub_axes import take_disjoint_prefix
from shardir.ir.types import TensorType
from shardir.op_rules.factors import FactorKind, FactorRule
from shardir.op_rules.partitioning import LocalOp, local_type_of
from shardir.passes.propagation.factor_projection import project_to_factors
from shardir.passes.resharding.align import (
    Alignment,
    align,
    pending_reduction,
    shardable_factors,
    sharding_of_factors,
)
from shardir.passes.resharding.cost import (
    COLLECTIVE_LATENCY_BYTES,
    MachineCost,
    ReshardCost,
    reshard_cost,
    scalar_cost,
    with_unreduced,
)

LAYOUT_POLICIES = ("cheapest", "shardy")
"""Policies that decide with which shardings an operation runs."""
MAX_BYTES_RATIO = 2
"""Fewer collectives do not justify this many times the bytes of another candidate."""
MAX_LEADERS = 4
"""Maximum number of tensors of an operation that may lead; the largest ones."""


@lru_cache(maxsize=1 << 14)
def cheapest_alignment(
    rule: FactorRule,
    places: tuple[Sharding, ...],
    types: tuple[TensorType, ...],
    cuttable: tuple[int, ...],
    uneven: tuple[int, ...],
    reduction: str | None,
    cost: ReshardCost = reshard_cost,
) -> Alignment:
    """Return the alignment with the cheapest reshards.

    `places` are the shardings of the operands and the requested ones of the results, including the
    axes over which they are unreduced.
    """
    bare = tuple(with_unreduced(sharding, ()) for sharding in places)
    first = align(rule, bare, cuttable, uneven)
    if all(a.axes == b.axes for a, b in zip(first.tensors, bare, strict=True)):
        return first
    is_contraction = bool(rule.of_kind(FactorKind.REDUCE))
    unsharded = _partially_unsharded_factors(rule, bare)
    most = _iterations_per_device(rule, first, unsharded) if is_contraction else None
    costs = {first: alignment_reshard_cost(rule, first, places, types, reduction, cost)}
    limit = costs[first][0]
    for led in (
        *_candidate_shardings(rule, bare, types),
        *_gathered_candidates(rule, first, unsharded),
    ):
        other = align(rule, led, cuttable, uneven)
        if other in costs or (most is not None and _iterations_per_device(rule, other) > most):
            continue
        costs[other] = alignment_reshard_cost(rule, other, places, types, reduction, cost)
    fewest = min(nbytes for nbytes, _ in costs.values())
    offered = [
        each
        for each, (nbytes, _) in costs.items()
        if nbytes == fewest or nbytes <= min(limit, (MAX_BYTES_RATIO * fewest) - 1)
    ]
    # The time of a collective includes its latency.
    latency = 0 if isinstance(cost, MachineCost) else COLLECTIVE_LATENCY_BYTES
    return min(offered, key=lambda each: scalar_cost(costs[each], latency))


def _candidate_shardings(
    rule: FactorRule, places: tuple[Sharding, ...], types: tuple[TensorType, ...]
) -> Iterator[tuple[Sharding, ...]]:
    """Yield the shardings that follow from the axes of each tensor, extended by those of the
    others."""
    sizes = tuple(factor.size for factor in rule.factors)
    views = [project_to_factors(m, s, sizes) for m, s in zip(rule.tensors, places, strict=True)]
    order = sorted(range(len(views)), key=lambda t: -types[t].nbytes)[:MAX_LEADERS]
    for leader in order:
        factor_axes: list[Axes] = [()] * len(sizes)
        decided: set[int] = set()
        for view in (views[leader], *views[:leader], *views[leader + 1 :]):
            taken = [axis for axes in factor_axes for axis in axes]
            for i, factor_sharding in view.factor_shardings.items():
                if i not in decided:
                    factor_axes[i] = take_disjoint_prefix(factor_sharding.axes, taken)
            decided.update(view.factor_shardings)
        yield tuple(
            sharding_of_factors(mapping, factor_axes, sharding.mesh)
            for mapping, sharding in zip(rule.tensors, places, strict=True)
        )


def _gathered_candidates(
    rule: FactorRule, alignment: Alignment, unsharded: frozenset[int]
) -> Iterator[tuple[Sharding, ...]]:
    """Yield the shardings of an alignment without the axes of the reduced factors `unsharded`.

    All other factors keep their axes, which no tensor that leads may have together.
    """
    gathered = [i for i in sorted(unsharded) if alignment.factor_axes[i]]
    for removed in (gathered, *([i] for i in gathered if len(gathered) > 1)):
        if removed:
            factor_axes = [
                () if i in removed else axes for i, axes in enumerate(alignment.factor_axes)
            ]
            yield tuple(
                sharding_of_factors(mapping, factor_axes, tensor.mesh)
                for mapping, tensor in zip(rule.tensors, alignment.tensors, strict=True)
            )


def alignment_reshard_cost(
    rule: FactorRule,
    fitting: Alignment,
    places: tuple[Sharding, ...],
    types: tuple[TensorType, ...],
    reduction: str | None,
    cost: ReshardCost = reshard_cost,
) -> tuple[int, int]:
    """Return the cost, by default in bytes, and the collectives of the reshards to and from an
    alignment."""
    total = collectives = 0
    pending = fitting.pending if reduction else ()
    for i, (sharding, there, type) in enumerate(zip(places, fitting.tensors, types, strict=True)):
        if i < len(rule.operands):
            one = cost(sharding, there, type)
        else:
            unreduced_sharding = with_unreduced(there, pending, reduction or "add")
            one = cost(unreduced_sharding, sharding, type)
        total, collectives = total + one[0], collectives + one[1]
    return total, collectives


def _partially_unsharded_factors(rule: FactorRule, places: tuple[Sharding, ...]) -> frozenset[int]:
    """Return the reduced factors that are unsharded in some operand."""
    return frozenset(
        i
        for i in rule.of_kind(FactorKind.REDUCE)
        for mapping, sharding in zip(rule.operands, places, strict=False)
        for factors, dim in zip(mapping, sharding.dims, strict=True)
        if i in factors and not dim.axes
    )


def _iterations_per_device(
    rule: FactorRule, fitting: Alignment, unsharded: frozenset[int] = frozenset()
) -> int:
    """Return the number of iterations per device if the factors in `unsharded` are not sharded."""
    return prod(
        -(-factor.size // (1 if i in unsharded else count_positions(axes)))
        for i, (factor, axes) in enumerate(zip(rule.factors, fitting.factor_axes, strict=True))
    )


def choose_alignment(
    op: Op,
    rule: FactorRule,
    places: tuple[Sharding, ...],
    uneven: tuple[int, ...],
    layouts: str,
    mesh: Mesh,
    cost: ReshardCost = reshard_cost,
) -> Alignment:
    """Return the alignment of an operation with operands, and requested results, sharded as
    `places`."""
    cuttable = shardable_factors(op, rule)
    if layouts == "shardy":
        return align(rule, tuple(with_unreduced(p, ()) for p in places), cuttable, uneven)
    types = tuple(value.type for value in op.tensors)
    reduction = pending_reduction(op, rule)
    chosen = cheapest_alignment(rule, places, types, cuttable, uneven, reduction, cost)
    exchanged = [i for i in rule.of_kind(FactorKind.PERMUTE) if chosen.factor_axes[i]]
    if not exchanged or not alignment_reshard_cost(rule, chosen, places, types, reduction)[0]:
        return chosen
    # The operation itself exchanges rows: it may cost less where these factors are unsharded.
    kept = tuple(i for i in cuttable if i not in exchanged)
    offered = (
        chosen,
        cheapest_alignment(rule, places, types, kept, uneven, reduction, cost),
        align(rule, tuple(with_unreduced(p, ()) for p in places), cuttable, uneven),
    )

    def cost_with_exchange(offer: Alignment) -> int:
        moved, _ = alignment_reshard_cost(rule, offer, places, types, reduction, cost)
        nbytes = exchanged_bytes(op, offer.tensors, mesh)
        if not nbytes or not isinstance(cost, MachineCost):
            return moved + nbytes
        axes = tuple(axis for i in exchanged for axis in offer.factor_axes[i])
        return moved + cost.collective_cost("collective-permute", nbytes, axes)

    return min(offered, key=cost_with_exchange)


def exchanged_bytes(op: Op, tensors: tuple[Sharding, ...], mesh: Mesh) -> int:
    """Return the bytes that a device sends while an operation with compatible shardings runs."""
    declared = op.spec.partition
    if declared is None or declared.lower is None:
        return 0
    count = len(op.operands)
    values = [
        replace(value, sharding=sharding)
        for value, sharding in zip(op.tensors, tensors, strict=True)
    ]
    placed = replace(op, operands=tuple(values[:count]), results=tuple(values[count:]))
    operands = [Value(local_type_of(value), value.name) for value in values[:count]]
    b = Builder()
    declared.lower(b, LocalOp(placed, mesh), *operands, **op.rule_arguments)
    return sum(map(sent_by, b.ops))
