"""Interpolation of arrays at any coordinates, the namespace `shardir.scipy.ndimage`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product
from operator import and_, mul

from shardir.errors import count_noun
from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import ArgumentError, ShapeError
from shardir.frontend.lax.elementwise import round
from shardir.frontend.numpy import api as snp
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import inexact_kind
from shardir.frontend.quoting import brief
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import as_tracer, convert
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.types import INTEGERS

__all__ = ["map_coordinates"]


def _reflect_between(index: Tracer, last: int) -> Tracer:
    """Return the index after reflections at 0 and at `last`."""
    return snp.abs((index + last) % (2 * last) - last) if last else index * 0


_PLACES: dict[str, Callable[[Tracer, int], Tracer]] = {
    "constant": lambda index, size: index,
    "nearest": lambda index, size: snp.clip(index, 0, size - 1),
    "wrap": lambda index, size: index % size,
    "mirror": lambda index, size: _reflect_between(index, size - 1),
    "reflect": lambda index, size: _reflect_between(2 * index + 1, 2 * size) // 2,
}
"""The index of an element inside of a dimension that an index stands for, in each mode."""


@public(static=("order", "mode"))
def map_coordinates(
    input: ArrayLike,
    coordinates: Sequence[ArrayLike],
    order: int,
    mode: str = "constant",
    cval: ArrayLike = 0.0,
) -> Tracer:
    """Return the values of `input` at coordinates, one array for each dimension.

    `order` 0 takes the nearest element, 1 interpolates linearly. `mode` states which element an
    index outside of the array stands for: "constant" (the value `cval`), "nearest", "wrap",
    "mirror" (reflected at the centers of the outer elements) or "reflect" (at their outer edges).
    Raise `ArgumentError` for other orders and modes, and `ShapeError` for another number of
    coordinates.
    """
    x, fill = as_tracer(input), as_tracer(cval)
    places = [as_tracer(each) for each in coordinates]
    if len(places) != x.ndim:
        raise ShapeError(
            with_location(
                f"map_coordinates has {count_noun(len(places), 'coordinate')} for an array of "
                f"shape {x.shape}; give one array for each dimension"
            )
        )
    if order not in (0, 1):
        raise ArgumentError(
            with_location(f"the order of map_coordinates is {brief(order)}; it must be 0 or 1")
        )
    if mode not in _PLACES:
        modes = ", ".join(map(repr, _PLACES))
        raise ArgumentError(
            with_location(f"the mode of map_coordinates is {brief(mode)}; it is one of {modes}")
        )
    terms = [
        _neighbours(place, size, order, mode) for place, size in zip(places, x.shape, strict=True)
    ]
    total: Tracer | None = None
    for corner in product(*terms):
        value = x[tuple(each.index for each in corner)]
        if mode == "constant":
            value = snp.where(reduce(and_, [each.is_inside for each in corner]), value, fill)
        if order:
            value = value * reduce(mul, [each.weight for each in corner])
        total = value if total is None else total + value
    assert total is not None
    if order and x.value.type.dtype in INTEGERS:
        total = round(total)
    return convert(total, x.value.type.dtype)


@dataclass(frozen=True)
class _Neighbour:
    """The elements beside coordinates in one dimension, with their weights."""

    index: Tracer
    is_inside: Tracer
    weight: Tracer


def _neighbours(place: Tracer, size: int, order: int, mode: str) -> list[_Neighbour]:
    place = convert(place, *inexact_kind(place))
    lower = snp.floor(place) if order else round(place)
    above = place - lower
    indices = [(lower, 1 - above), (lower + 1, above)] if order else [(lower, above)]
    return [
        _Neighbour(_PLACES[mode](index, size), (index >= 0) & (index < size), weight)
        for index, weight in ((convert(each, "i32"), weight) for each, weight in indices)
    ]
