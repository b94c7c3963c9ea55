"""Functional updates: `x.at[...].set(y)` is a copy of `x` with the indexed elements replaced.

The index is the same as in `x[...]`. Elements out of range are not updated.
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
    """The object `x.at`, which is to be indexed."""

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
    """The object `x.at[index]`, which reads a part of an array or updates it in a copy.

    All methods accept `mode` for indices out of range: updates are dropped ("drop", "fill",
    "promise_in_bounds", the default) or applied to the nearest element ("clip"). A concrete integer
    out of range raises `IndexingError` unless a mode is given. `indices_are_sorted` and
    `unique_indices` are accepted for compatibility. `out_sharding` states the sharding of the
    result.
    """

    __slots__ = ("_array", "_index")

    def __init__(self, array: Any, index: Any) -> None:
        self._array, self._index = array, index

    def set(self, values: Any, **options: Any) -> Any:
        """Replace the elements by `values`; of several updates of one element the last is
        applied.
        """
        return self._updated("set", values, options)

    def add(self, values: Any, **options: Any) -> Any:
        """Add `values`; several updates of one element accumulate."""
        return self._updated("add", values, options)

    def subtract(self, values: Any, **options: Any) -> Any:
        """Subtract `values`; several updates of one element accumulate."""
        return self._updated("subtract", values, options)

    def multiply(self, values: Any, **options: Any) -> Any:
        """Multiply by `values`; several updates of one element accumulate."""
        return self._updated("mul", values, options)

    mul = multiply

    def min(self, values: Any, **options: Any) -> Any:
        """Set the minimum of the elements and `values`."""
        return self._updated("min", values, options)

    def max(self, values: Any, **options: Any) -> Any:
        """Set the maximum of the elements and `values`."""
        return self._updated("max", values, options)

    def divide(self, values: Any, **options: Any) -> Any:
        """Divide by `values`."""
        from shardir.frontend import numpy as snp

        out_sharding = options.pop("out_sharding", None)
        result = snp.true_divide(self._array, self._factors(values, options))
        return laid_out(result, out_sharding)

    def power(self, values: Any, **options: Any) -> Any:
        """Raise to the power of `values`."""
        from shardir.frontend import numpy as snp

        out_sharding = options.pop("out_sharding", None)
        return laid_out(snp.power(self._array, self._factors(values, options)), out_sharding)

    def apply(self, ufunc: Callable[[Any], Any], **options: Any) -> Any:
        """Apply `ufunc` to the elements, once per element."""
        current = self.get() if _mode(options) is None else self.get(mode="clip")
        return self._updated(
            "set", called(ufunc, "the function of at[...].apply", (current,)), options
        )

    def get(self, *, fill_value: Any = None, **options: Any) -> Any:
        """Return the elements; indices out of range read the nearest element.

        With `mode="fill"` (or `"drop"`) they give `fill_value`: by default NaN, the lowest value of
        signed integer types, the highest of unsigned ones, and true for bools.
        """
        from shardir.frontend.numpy.indexing import get

        mode = _mode(options)
        result = get(self._array, self._index, "fill" if mode == "drop" else mode, fill_value)
        return laid_out(result, options.get("out_sharding"))

    def __getattr__(self, name: str) -> NoReturn:
        known = sorted(method for method in vars(Place) if not method.startswith("_"))
        raise UnknownMethod(point(f"x.at[index] has no method {name!r}; it has {', '.join(known)}"))

    def _factors(self, values: Any, options: dict[str, Any]) -> Any:
        from shardir.frontend import numpy as snp

        return Place(snp.ones_like(self._array), self._index).multiply(values, **options)

    def _updated(self, op: str, values: Any, options: dict[str, Any]) -> Any:
        result = _update(self._array, self._index, values, op, _mode(options))
        return laid_out(result, options.get("out_sharding"))

    def __repr__(self) -> str:
        return f"IndexedUpdate({self._array!r}, {self._index!r})"


@composed()
def _update(x: Any, index: Any, values: Any, op: str, mode: str | None) -> Any:
    """Return a copy of `x` with the indexed part updated."""
    mask = _fitting_mask(x, index, values)
    if mask is not None:
        return update_masked(x, mask, values, op)
    subscript, arrays = parse(tuple(x.shape), index, beyond=mode is not None)
    return update(x, arrays, values, subscript, op, mode or "drop")


def _mode(options: dict[str, Any]) -> str | None:
    accepted = ("mode", "indices_are_sorted", "unique_indices", "wrap_negative_indices",
             "out_sharding")  # fmt: skip
    for option in options:
        if option not in accepted:
            raise ArgumentError(
                point(f"an update takes no option {option!r}; it takes {', '.join(accepted[:3])}")
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
        listed = ", ".join(MODES)
        raise ArgumentError(point(f"mode {brief(mode)} is unknown; the modes are {listed}"))
    return mode


def _fitting_mask(x: Any, index: Any, values: Any) -> Any:
    """Return the mask, if it is the complete index and one value is assigned to all its
    elements.
    """
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
