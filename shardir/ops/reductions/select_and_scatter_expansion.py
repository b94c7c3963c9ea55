"""Select-and-scatter expanded into slices, one per position in the window.

Used where windows include padding: padding must not be selected, and its position differs from
device to device.
"""

from itertools import product
from typing import Any

from shardir.ops.type_checks import Ints


def expand_select_and_scatter(
    b: Any,
    x: Any,
    source: Any,
    real: Any,
    *,
    op: str,
    window: Ints,
    strides: Ints,
    window_dilation: Ints,
) -> Any:
    """Return `select_and_scatter` over `x` without padding, selecting only elements where `real` is
    true.
    """
    places = list(product(*map(range, window)))
    shape = source.type.shape

    def at(value: Any, place: Ints) -> Any:
        """Return the elements of all windows at one position of the window."""
        starts = tuple(p * step for p, step in zip(place, window_dilation, strict=True))
        to = value.type.with_shape(shape)
        return b.slice(value, starts=starts, strides=strides, result=to)

    numbers = source.type.with_dtype("i32")
    best, choice = b.full(0, source.type), b.full(-1, numbers)
    for number, place in enumerate(places):
        here = at(x, place)
        better = b.gt(here, best) if op == "max" else b.lt(here, best)
        # NaN takes precedence over all numbers.
        better = b.or_(better, b.and_(b.ne(here, here), b.eq(best, best)))
        better = b.or_(better, b.lt(choice, b.full(0, numbers)))
        better = b.and_(better, at(real, place))
        best = b.select(better, here, best)
        choice = b.select(better, b.full(number, numbers), choice)
    total = b.full(0, x.type)
    zero, none = b.full(0, source.type.with_shape(())), b.full(0, source.type)
    for number, place in enumerate(places):
        part = b.select(b.eq(choice, b.full(number, numbers)), source, none)
        low = tuple(p * step for p, step in zip(place, window_dilation, strict=True))
        high = tuple(
            whole - start - (n - 1) * stride - 1
            for whole, start, n, stride in zip(x.type.shape, low, shape, strides, strict=True)
        )
        interior = tuple(stride - 1 for stride in strides)
        total = b.add(total, b.pad(part, zero, low=low, high=high, interior=interior))
    return total
