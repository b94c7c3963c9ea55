"""Choose the shardings with which an operation with incompatible operands runs.

OpenXLA Shardy follows the larger tensor, or the axes that most of the data has. Here that choice is
one of several candidates: in each of the others one tensor leads, extended by the axes that the
others can add. The shardings of all values are decided, so the cost of bringing the operands there
and the results away is exact, and the cheapest candidate is the best for the program. Fewer
collectives outweigh bytes as long as no more bytes are sent than by Shardy's choice, which wins
ties. A contraction computes more than with Shardy's choice only if a reduced factor is sharded in
one operand and unsharded in another: gathering may then send less than completing the reduction.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from math import prod

from shardir.axes import clear_of, truncate
from shardir.factors import FactorRule, Kind
from shardir.ir import Op
from shardir.passes.align import Alignment, align, cuts_of, reduction_of, unprojected
from shardir.passes.prices import LATENCY, pending_over, price, weight
from shardir.passes.propagation.projection import project
from shardir.placement import Axes, Axis, Sharding, size_of
from shardir.types import TensorType

LAYOUTS = ("cheapest", "shardy")
"""Policies that decide with which shardings an operation runs."""
LEADERS = 4
"""Maximum number of tensors of an operation that may lead; the largest ones."""


@lru_cache(maxsize=1 << 14)
def cheapest(
    rule: FactorRule,
    places: tuple[Sharding, ...],
    types: tuple[TensorType, ...],
    cuttable: tuple[int, ...],
    uneven: tuple[int, ...],
    reduction: str | None,
) -> Alignment:
    """Return the alignment with the cheapest reshards.

    `places` are the shardings of the operands and the wanted ones of the results, including the
    axes over which they are unreduced.
    """
    bare = tuple(pending_over(place, ()) for place in places)
    first = align(rule, bare, cuttable, uneven)
    if all(a.axes == b.axes for a, b in zip(first.tensors, bare, strict=True)):
        return first
    most = _work(rule, first, _disputed(rule, bare)) if rule.of_kind(Kind.REDUCE) else None
    best, least = first, moves_of(rule, first, places, types, reduction)
    limit = least[0]
    for led in _led(rule, bare, types):
        other = align(rule, led, cuttable, uneven)
        if most is not None and _work(rule, other) > most:
            continue
        cost = moves_of(rule, other, places, types, reduction)
        if cost[0] <= limit and weight(cost, LATENCY) < weight(least, LATENCY):
            best, least = other, cost
    return best


def _led(
    rule: FactorRule, places: tuple[Sharding, ...], types: tuple[TensorType, ...]
) -> Iterator[tuple[Sharding, ...]]:
    """Yield the shardings that follow from the axes of each tensor, extended by those of the
    others."""
    sizes = tuple(factor.size for factor in rule.factors)
    views = [project(m, s, sizes) for m, s in zip(rule.tensors, places, strict=True)]
    order = sorted(range(len(views)), key=lambda t: -types[t].nbytes)[:LEADERS]
    for leader in order:
        cuts: list[Axes] = [()] * len(sizes)
        decided: set[int] = set()
        for view in (views[leader], *views[:leader], *views[leader + 1 :]):
            taken = [axis for axes in cuts for axis in axes]
            for i, cut in view.cuts.items():
                if i not in decided:
                    cuts[i] = until_taken(cut.axes, taken)
            decided.update(view.cuts)
        yield tuple(
            unprojected(mapping, cuts, place.mesh)
            for mapping, place in zip(rule.tensors, places, strict=True)
        )


def until_taken(axes: Axes, taken: Sequence[Axis]) -> Axes:
    """Return the longest prefix of `axes` that does not overlap `taken`."""
    return truncate(axes, lambda axis, _: clear_of(axis, taken))


def moves_of(
    rule: FactorRule,
    fitting: Alignment,
    places: tuple[Sharding, ...],
    types: tuple[TensorType, ...],
    reduction: str | None,
) -> tuple[int, int]:
    """Return bytes and collectives of the reshards to and from an alignment."""
    nbytes = collectives = 0
    pending = fitting.pending if reduction else ()
    for i, (place, there, type) in enumerate(zip(places, fitting.tensors, types, strict=True)):
        if i < len(rule.operands):
            cost = price(place, there, type)
        else:
            made = replace(there, unreduced=pending, reduction=reduction or "add")
            cost = price(made, place, type)
        nbytes, collectives = nbytes + cost[0], collectives + cost[1]
    return nbytes, collectives


def _disputed(rule: FactorRule, places: tuple[Sharding, ...]) -> frozenset[int]:
    """Return the reduced factors that are unsharded in some operand."""
    return frozenset(
        i
        for i in rule.of_kind(Kind.REDUCE)
        for mapping, place in zip(rule.operands, places, strict=False)
        for factors, dim in zip(mapping, place.dims, strict=True)
        if i in factors and not dim.axes
    )


def _work(rule: FactorRule, fitting: Alignment, whole: frozenset[int] = frozenset()) -> int:
    """Return the number of iterations per device if the factors in `whole` are not sharded."""
    return prod(
        -(-factor.size // (1 if i in whole else size_of(axes)))
        for i, (factor, axes) in enumerate(zip(rule.factors, fitting.cuts, strict=True))
    )


def alignment_of(
    op: Op, rule: FactorRule, places: tuple[Sharding, ...], uneven: tuple[int, ...], layouts: str
) -> Alignment:
    """Return the alignment of an operation with operands, and wanted results, sharded as
    `places`."""
    cuttable = cuts_of(op, rule)
    if layouts == "shardy":
        return align(rule, tuple(pending_over(p, ()) for p in places), cuttable, uneven)
    types = tuple(value.type for value in op.tensors)
    return cheapest(rule, places, types, cuttable, uneven, reduction_of(op, rule))
