"""Where an operation runs when its tensors do not fit together: wherever the moves send least.

OpenXLA Shardy follows the larger tensor, or the cuts that most of the data has. Here that is one
candidate among others: each tensor in turn leads, with what the others can add to its cuts. What
each takes to bring the operands there and the results away is known exactly, since the shardings
of all values are decided, so the cheapest candidate is the best of them for the whole program.
Fewer collectives count more than fewer bytes as long as no more bytes are sent than by Shardy's
choice, which wins ties. Contractions compute more than they would with it only where a loop that
is summed up is cut in one operand and whole in another: there gathering may send less than
completing the sum.
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
"""Who decides where an operation runs."""
LEADERS = 4
"""How many tensors of an operation may lead; of more, the largest."""


@lru_cache(maxsize=1 << 14)
def cheapest(
    rule: FactorRule,
    places: tuple[Sharding, ...],
    types: tuple[TensorType, ...],
    cuttable: tuple[int, ...],
    uneven: tuple[int, ...],
    reduction: str | None,
) -> Alignment:
    """The alignment with the cheapest moves.

    `places` are where operands are and results are wanted, sums that are pending there included.
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
    """The shardings that follow from each tensor's cuts, and what the others add to them."""
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
    """What axes begin with that overlaps nothing that is taken."""
    return truncate(axes, lambda axis, _: clear_of(axis, taken))


def moves_of(
    rule: FactorRule,
    fitting: Alignment,
    places: tuple[Sharding, ...],
    types: tuple[TensorType, ...],
    reduction: str | None,
) -> tuple[int, int]:
    """Bytes and collectives of the moves to and from an alignment."""
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
    """The loops that are summed up, and that some operand walks whole."""
    return frozenset(
        i
        for i in rule.of_kind(Kind.REDUCE)
        for mapping, place in zip(rule.operands, places, strict=False)
        for factors, dim in zip(mapping, place.dims, strict=True)
        if i in factors and not dim.axes
    )


def _work(rule: FactorRule, fitting: Alignment, whole: frozenset[int] = frozenset()) -> int:
    """How many rounds the loops take on one device, if those in `whole` are not cut."""
    return prod(
        -(-factor.size // (1 if i in whole else size_of(axes)))
        for i, (factor, axes) in enumerate(zip(rule.factors, fitting.cuts, strict=True))
    )


def alignment_of(
    op: Op, rule: FactorRule, places: tuple[Sharding, ...], uneven: tuple[int, ...], layouts: str
) -> Alignment:
    """How an operation runs whose operands are, and whose results are wanted, at `places`."""
    cuttable = cuts_of(op, rule)
    if layouts == "shardy":
        return align(rule, tuple(pending_over(p, ()) for p in places), cuttable, uneven)
    types = tuple(value.type for value in op.tensors)
    return cheapest(rule, places, types, cuttable, uneven, reduction_of(op, rule))
