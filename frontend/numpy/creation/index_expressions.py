"""Objects that are indexed instead of called: `s_[1:3]`, `r_[0:5, x]`, `c_[x, y]`."""

from typing import Any, final

import numpy as np

from shardir.errors import OperationTypeError
from shardir.frontend.numpy.creation import array_conversion, grids, ranges
from shardir.frontend.numpy.shaping import concatenation, reshaping
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.tracer import Tracer


@final
class IndexExpression:
    """`s_[...]` returns the index; `index_exp[...]` returns it always as a tuple."""

    def __init__(self, always_tuple: bool) -> None:
        self._always_tuple = always_tuple

    def __getitem__(self, index: object) -> object:
        return (index,) if self._always_tuple and not isinstance(index, tuple) else index


s_ = IndexExpression(always_tuple=False)
"""`s_[2:5, 0]` returns the index between the brackets."""
index_exp = IndexExpression(always_tuple=True)
"""`index_exp[2:5]` returns the index between the brackets, always as a tuple."""


@final
class Concatenator:
    """Concatenation of arrays, scalars and ranges that are written as an index.

    `1:9:2` is `arange(1, 9, 2)`, `0:1:5j` is `linspace(0, 1, 5)`. A leading text states, as in
    NumPy, the axis of concatenation ("0"), the minimum number of dimensions ("0,2"), and the
    position of the original dimensions of an array that has fewer ("0,2,0"); or that a vector
    becomes a row ("r") or a column ("c").
    """

    def __init__(self, axis: int, dims: int, own: int) -> None:
        self._defaults = axis, dims, own

    def __getitem__(self, items: object) -> Tracer:

        items = items if isinstance(items, tuple) else (items,)
        axis, dims, own = self._defaults
        matrix = ""
        if items and isinstance(items[0], str):
            matrix = items[0] if items[0] in ("r", "c") else ""
            axis, dims, own = _parse_directive(items[0], self._defaults)
            items = items[1:]
        joined = concatenation.concatenate([_expand_item(item, dims, own) for item in items], axis)
        if not matrix or joined.ndim > 1:
            return joined
        return reshaping.expand_dims(joined, 0 if matrix == "r" else 1)


def _parse_directive(text: str, defaults: tuple[int, int, int]) -> tuple[int, int, int]:
    if text in ("r", "c"):
        return defaults
    try:
        given = [int(part) for part in text.split(",")]
    except ValueError:
        given = []
    if not 1 <= len(given) <= 3:
        raise OperationTypeError(
            with_location(
                f"the directive {text!r} is unknown; it is one to three integers: '0,2,-1', or "
                "'r' or 'c'"
            )
        )
    axis, dims, own = (*given, *defaults[len(given) :])
    return axis, dims, own


def _expand_item(item: Any, dims: int, own: int) -> Tracer:

    if isinstance(item, slice):
        item = _expand_range(item)
    rank = len(np.shape(item))
    if not rank:
        return reshaping.reshape(item, (1,) * max(dims, 1))
    array = array_conversion.asarray(item)
    if rank >= dims:
        return array
    if own < 0:
        own += dims - rank + 1
    return reshaping.expand_dims(array, tuple(d for d in range(dims) if not own <= d < own + rank))


def _expand_range(item: slice) -> Tracer:

    start = 0 if item.start is None else item.start
    if isinstance(item.step, complex):
        spaced: Tracer = grids.linspace(start, item.stop, int(abs(item.step)))
        return spaced
    return ranges.arange(start, item.stop, 1 if item.step is None else item.step)


r_ = Concatenator(0, 1, -1)
"""`r_[0:3, 7, x]` concatenates ranges, numbers and arrays along their first dimension."""
c_ = Concatenator(-1, 2, 0)
"""`c_[x, y]` concatenates along the last dimension; vectors become columns."""
