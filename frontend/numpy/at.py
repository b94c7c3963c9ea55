"""Updates: `x.at[...].set(y)` is a copy of `x` with other elements there.

The index is what `x[...]` takes. Elements out of range are not updated.
"""

from collections.abc import Callable
from typing import Any, NoReturn, final

import numpy as np

from shardir.frontend.amounts import is_one_of
from shardir.frontend.composing import composed
from shardir.frontend.errors import ArgumentError, ImmutableError, UnknownMethod
from shardir.frontend.locations import point
from shardir.frontend.numpy.subscripts import parse
from shardir.frontend.numpy.updates import update, update_masked
from shardir.frontend.operands import kind_of
from shardir.frontend.parameters import called
from shardir.frontend.quoting import brief
from shardir.frontend.resharding import laid_out

MODES = ("drop", "fill", "clip", "promise_in_bounds")


@final
class At:
    """`x.at`; index it."""

    __slots__ = ("_array",)

    def __init__(self, array: Any) -> None:
        self._array = array

    def __getitem__(self, index: Any) -> "Place":
        return Place(self._array, index)

    def __setitem__(self, index: Any, value: Any) -> NoReturn:
        raise ImmutableError(
            point(
                "arrays are never changed in place; make a new one: "
                "x = x.at[index].set(value), or .add, .multiply, .max, ..."
            )
        )

    def __getattr__(self, name: str) -> NoReturn:
        raise UnknownMethod(point(f"x.at has no attribute {name!r}; write x.at[index].{name}"))

    def __repr__(self) -> str:
        return f"At({self._array!r})"


@final
class Place:
    """`x.at[index]`: a part of an array, to be read or to be changed in a copy.

    All methods take `mode`, which says what becomes of indices out of range: updates are dropped
    ("drop", "fill", "promise_in_bounds", the default) or moved to the nearest element ("clip").
    An integer known to be out of range raises `IndexingError` unless a mode is given.
    `indices_are_sorted` and `unique_indices` are accepted for compatibility. `out_sharding` asks
    for the layout of the result.
    """

    __slots__ = ("_array", "_index")

    def __init__(self, array: Any, index: Any) -> None:
        self._array, self._index = array, index

    def set(self, values: Any, **options: Any) -> Any:
        """`values` instead of what is there; of several for one element the last wins."""
        return self._updated("set", values, options)

    def add(self, values: Any, **options: Any) -> Any:
        """`values` added, those for one element all of them."""
        return self._updated("add", values, options)

    def subtract(self, values: Any, **options: Any) -> Any:
        """`values` subtracted."""
        return self._updated("subtract", values, options)

    def multiply(self, values: Any, **options: Any) -> Any:
        """Multiplied by `values`."""
        return self._updated("mul", values, options)

    mul = multiply

    def min(self, values: Any, **options: Any) -> Any:
        """The smaller of what is there and `values`."""
        return self._updated("min", values, options)

    def max(self, values: Any, **options: Any) -> Any:
        """The larger of what is there and `values`."""
        return self._updated("max", values, options)

    def divide(self, values: Any, **options: Any) -> Any:
        """Divided by `values`."""
        from shardir.frontend import numpy as snp

        out_sharding = options.pop("out_sharding", None)
        made = snp.true_divide(self._array, self._factors(values, options))
        return laid_out(made, out_sharding)

    def power(self, values: Any, **options: Any) -> Any:
        """To the power of `values`."""
        from shardir.frontend import numpy as snp

        out_sharding = options.pop("out_sharding", None)
        return laid_out(snp.power(self._array, self._factors(values, options)), out_sharding)

    def apply(self, ufunc: Callable[[Any], Any], **options: Any) -> Any:
        """`ufunc` of what is there, once for each element."""
        there = self.get() if _mode(options) is None else self.get(mode="clip")
        return self._updated(
            "set", called(ufunc, "the function of at[...].apply", (there,)), options
        )

    def get(self, *, fill_value: Any = None, **options: Any) -> Any:
        """What is there; indices out of range read the nearest element.

        With `mode="fill"` (or `"drop"`) they give `fill_value`: unless told NaN, for integers the
        lowest of signed and the highest of unsigned ones, for bools true.
        """
        from shardir.frontend.numpy.indexing import get

        mode = _mode(options)
        made = get(self._array, self._index, "fill" if mode == "drop" else mode, fill_value)
        return laid_out(made, options.get("out_sharding"))

    def __getattr__(self, name: str) -> NoReturn:
        known = sorted(method for method in vars(Place) if not method.startswith("_"))
        raise UnknownMethod(point(f"x.at[index] has no method {name!r}; it has {', '.join(known)}"))

    def _factors(self, values: Any, options: dict[str, Any]) -> Any:
        from shardir.frontend import numpy as snp

        return Place(snp.ones_like(self._array), self._index).multiply(values, **options)

    def _updated(self, op: str, values: Any, options: dict[str, Any]) -> Any:
        made = _update(self._array, self._index, values, op, _mode(options))
        return laid_out(made, options.get("out_sharding"))

    def __repr__(self) -> str:
        return f"Place({self._array!r}, {self._index!r})"


@composed()
def _update(x: Any, index: Any, values: Any, op: str, mode: str | None) -> Any:
    """A copy of `x` with a part changed."""
    mask = _fitting_mask(x, index, values)
    if mask is not None:
        return update_masked(x, mask, values, op)
    subscript, arrays = parse(tuple(x.shape), index, beyond=mode is not None)
    return update(x, arrays, values, subscript, op, mode or "drop")


def _mode(options: dict[str, Any]) -> str | None:
    known = ("mode", "indices_are_sorted", "unique_indices", "wrap_negative_indices",
             "out_sharding")  # fmt: skip
    for option in options:
        if option not in known:
            raise ArgumentError(
                point(f"an update takes no option {option!r}; it takes {', '.join(known[:3])}")
            )
    if not options.get("wrap_negative_indices", True):
        raise ArgumentError(
            point(
                "negative indices count from the end, so wrap_negative_indices is True; give "
                "indices that are out of range above instead"
            )
        )
    mode: str | None = options.get("mode")
    if mode is not None and not is_one_of(mode, MODES):
        told = ", ".join(MODES)
        raise ArgumentError(point(f"mode {brief(mode)} is unknown; the modes are {told}"))
    return mode


def _fitting_mask(x: Any, index: Any, values: Any) -> Any:
    """The mask, if that is all of the index and one value goes to all its places."""
    if isinstance(index, tuple) and len(index) == 1:
        index = index[0]
    if not hasattr(index, "shape") or kind_of(index)[0] != "bool":
        return None
    rank = len(index.shape)
    if not rank or tuple(x.shape[:rank]) != tuple(index.shape):
        return None
    if len(getattr(values, "shape", np.shape(values))) > len(x.shape) - rank:
        return None
    return index
