"""Candidate shardings of the result of an operation, and the cost of the reshards each needs."""

from collections.abc import Iterator
from functools import lru_cache

from shardir.axes import append
from shardir.factors import FactorRule, Kind
from shardir.ir import Op
from shardir.passes.align import (
    Alignment,
    align,
    cuts_of,
    fits,
    loops_of,
    reduction_of,
    unprojected,
)
from shardir.passes.layouts import cheapest, moves_of, until_taken
from shardir.passes.prices import price
from shardir.passes.propagation.projection import project
from shardir.passes.uneven import loops_that_pad, uneven_dims
from shardir.placement import Axes, Sharding

MOST = 4
"""Maximum number of operands whose shardings are tried, in operand order."""


def price_of(op: Op, places: tuple[Sharding, ...]) -> tuple[int, int]:
    """Return bytes and collectives of the reshards of an operation whose tensors are sharded as
    `places`."""
    types = tuple(value.type for value in op.tensors)
    rule = loops_of(op)
    if rule is None:
        if op.spec.partition is not None and not op.operands:
            return 0, 0
        wholes = [Sharding.whole(place.mesh, len(place.dims)) for place in places]
        costs = [price(p, w, t) for p, w, t in zip(places, wholes, types, strict=True)]
        return sum(c[0] for c in costs), sum(c[1] for c in costs)
    return moves_of(rule, _fitting(op, rule, places), places, types, reduction_of(op, rule))


def is_disputed(op: Op, places: tuple[Sharding, ...]) -> bool:
    """Return whether data moves for an operation that leaves no pending reduction."""
    rule = loops_of(op)
    if rule is None:
        return False
    fitting = _fitting(op, rule, places)
    if fitting.pending and reduction_of(op, rule) is not None:
        return False
    count = len(op.operands)
    return any(
        price(place, there, value.type)[0] if i < count else price(there, place, value.type)[0]
        for i, (value, place, there) in enumerate(
            zip(op.tensors, places, fitting.tensors, strict=True)
        )
    )


def _fitting(op: Op, rule: FactorRule, places: tuple[Sharding, ...]) -> Alignment:
    types = tuple(value.type for value in op.tensors)
    odd = any(uneven_dims(p, t.shape) for p, t in zip(places, types, strict=True))
    padding = loops_that_pad(op, rule) if odd else ()
    return cheapest(rule, places, types, cuts_of(op, rule), padding, reduction_of(op, rule))


def offers_of(op: Op, places: tuple[Sharding, ...], result: Sharding) -> tuple[Sharding, ...]:
    """Return the shardings of the only result that the shardings of the operands suggest."""
    rule = loops_of(op)
    return () if rule is None else _offers(rule, places, result, cuts_of(op, rule))


@lru_cache(maxsize=1 << 12)
def _offers(
    rule: FactorRule, places: tuple[Sharding, ...], result: Sharding, cuttable: tuple[int, ...]
) -> tuple[Sharding, ...]:
    sizes = tuple(factor.size for factor in rule.factors)
    operands = [project(m, s, sizes) for m, s in zip(rule.operands, places, strict=True)]
    given = [{i: cut.axes for i, cut in view.cuts.items() if cut.axes} for view in operands]
    walked = {i for dim in rule.results[0] for i in dim}
    shared = [i for i in cuttable if i in walked and rule.factors[i].kind is Kind.PASS]
    found: dict[Sharding, None] = {}
    for chosen in _choices(given, shared, len(sizes)):
        cuts = [axes if i in cuttable else () for i, axes in enumerate(chosen)]
        if any(axes and not fits(rule, cuts, i, axes) for i, axes in enumerate(cuts)):
            continue
        led = tuple(unprojected(mapping, cuts, result.mesh) for mapping in rule.tensors)
        found[align(rule, led, cuttable).tensors[-1]] = None
    return tuple(found)


def _choices(given: list[dict[int, Axes]], shared: list[int], count: int) -> Iterator[list[Axes]]:
    """Yield axes of the factors: those of each operand extended by the others, and with one factor
    moved."""
    for leader in range(min(len(given), MOST)):
        order = (given[leader], *given[:leader], *given[leader + 1 :])
        for longer in (False, True):
            cuts: list[Axes] = [()] * count
            for cut in order:
                for i, axes in cut.items():
                    if cuts[i] and not longer:
                        continue
                    taken = [axis for other in cuts for axis in other]
                    for axis in until_taken(axes, taken):
                        cuts[i] = append(cuts[i], axis)
            yield cuts
        for i, axes in given[leader].items():
            for other in shared:
                if other not in given[leader]:
                    moved: list[Axes] = [()] * count
                    for j, kept in given[leader].items():
                        moved[j] = kept
                    moved[i], moved[other] = (), axes
                    yield moved
