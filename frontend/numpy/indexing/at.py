"""Functional updates: `x.at[...].set(y)` is a copy of `x` with the indexed elements replaced.

The index is the same as in `x[...]`. Elements out of range are not updated.
"""

from collections.abc import Callable
from typing import Any, NoReturn, final

import numpy as np

from shardir.frontend.argument_checks import call_user_function, is_one_of
from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.arrays.operators import Operators
from shardir.frontend.dispatch.composed import composed_function
from shardir.frontend.errors import ArgumentError, ImmutableError, UnknownMethod
from shardir.frontend.numpy.creation import filling
from shardir.frontend.numpy.elementwise import arithmetic
from shardir.frontend.numpy.indexing.getitem import getitem_with_mode
from shardir.frontend.numpy.indexing.subscripts import parse_subscript
from shardir.frontend.numpy.indexing.updates import update, update_masked
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.quoting import brief
from shardir.frontend.shardings.resharding import call_with_out_sharding
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import operand_dtype
from shardir.frontend.tracing.tracer import Tracer

UPDATE_MODES = ("drop", "fill", "clip", "promise_in_bounds")


@final
class At:
    """The object `x.at`, which is to be indexed."""

    __slots__ = ("_array",)

    def __init__(self, array: Tracer) -> None:
        self._array = array

    def __getitem__(self, index: ArrayLike) -> "IndexedUpdate":
        return IndexedUpdate(self._array, index)

    def __setitem__(self, index: ArrayLike, value: object) -> NoReturn:
        raise ImmutableError(
            with_location(
                "arrays are never changed in place; make a new one: "
                "x = x.at[index].set(value), or .add, .multiply, .max, ..."
            )
        )

    def __getattr__(self, name: str) -> NoReturn:
        raise UnknownMethod(
            with_location(f"x.at has no attribute {name!r}; write x.at[index].{name}")
        )

    def __repr__(self) -> str:
        return f"At({self._array!r})"


@final
class IndexedUpdate:
    """The object `x.at[index]`, which reads a part of an array or updates it in a copy.

    All methods accept `mode` for indices out of range: updates are dropped ("drop", "fill",
    "promise_in_bounds", the default) or applied to the nearest element ("clip"). A concrete integer
    out of range raises `IndexingError` unless a mode is given. `indices_are_sorted` and
    `unique_indices` are accepted for compatibility. `out_sharding` states the sharding of the
    result.
    """

    __slots__ = ("_array", "_index")

    def __init__(self, array: Tracer, index: ArrayLike) -> None:
        self._array, self._index = array, index

    def set(self, values: ArrayLike, **options: PyTree) -> Tracer:
        """Replace the elements by `values`; of several updates of one element the last is
        applied.
        """
        return self._apply_update("set", values, options)

    def add(self, values: ArrayLike, **options: PyTree) -> Tracer:
        """Add `values`; several updates of one element accumulate."""
        return self._apply_update("add", values, options)

    def subtract(self, values: ArrayLike, **options: PyTree) -> Tracer:
        """Subtract `values`; several updates of one element accumulate."""
        return self._apply_update("subtract", values, options)

    def multiply(self, values: ArrayLike, **options: PyTree) -> Tracer:
        """Multiply by `values`; several updates of one element accumulate."""
        return self._apply_update("mul", values, options)

    mul = multiply

    def min(self, values: Tracer, **options: PyTree) -> Tracer:
        """Set the minimum of the elements and `values`."""
        return self._apply_update("min", values, options)

    def max(self, values: ArrayLike, **options: PyTree) -> Tracer:
        """Set the maximum of the elements and `values`."""
        return self._apply_update("max", values, options)

    def divide(self, values: ArrayLike, **options: PyTree) -> Tracer:
        """Divide by `values`."""

        out_sharding = options.pop("out_sharding", None)
        return call_with_out_sharding(
            out_sharding,
            lambda: arithmetic.true_divide(self._array, self._product_of_updates(values, options)),
        )

    def power(self, values: ArrayLike, **options: PyTree) -> Tracer:
        """Raise to the power of `values`."""

        out_sharding = options.pop("out_sharding", None)
        return call_with_out_sharding(
            out_sharding,
            lambda: arithmetic.power(self._array, self._product_of_updates(values, options)),
        )

    def apply(self, ufunc: Callable[[PyTree], PyTree], **options: PyTree) -> Tracer:
        """Apply `ufunc` to the elements, once per element."""
        current = self.get() if _check_options(options) is None else self.get(mode="clip")
        return self._apply_update(
            "set", call_user_function(ufunc, "the function of at[...].apply", (current,)), options
        )

    def get(self, *, fill_value: ArrayLike | None = None, **options: PyTree) -> Tracer:
        """Return the elements; indices out of range read the nearest element.

        With `mode="fill"` (or `"drop"`) they give `fill_value`: by default NaN, the lowest value of
        signed integer types, the highest of unsigned ones, and true for bools.
        """
        mode = _check_options(options)
        return call_with_out_sharding(
            options.get("out_sharding"),
            getitem_with_mode,
            self._array,
            self._index,
            "fill" if mode == "drop" else mode,
            fill_value,
        )

    def __getattr__(self, name: str) -> NoReturn:
        known = sorted(method for method in vars(IndexedUpdate) if not method.startswith("_"))
        raise UnknownMethod(
            with_location(f"x.at[index] has no method {name!r}; it has {', '.join(known)}")
        )

    def _product_of_updates(self, values: ArrayLike, options: dict[str, PyTree]) -> Tracer:

        return IndexedUpdate(filling.ones_like(self._array), self._index).multiply(
            values, **options
        )

    def _apply_update(self, op: str, values: ArrayLike, options: dict[str, PyTree]) -> Tracer:
        return call_with_out_sharding(
            options.get("out_sharding"),
            _update,
            self._array,
            self._index,
            values,
            op,
            _check_options(options),
        )

    def __repr__(self) -> str:
        return f"IndexedUpdate({self._array!r}, {self._index!r})"


@composed_function()
def _update(x: Tracer, index: ArrayLike, values: ArrayLike, op: str, mode: str | None) -> Tracer:
    """Return a copy of `x` with the indexed part updated."""
    mask = _mask_of_index(x, index, values)
    if mask is not None:
        return update_masked(x, mask, values, op)
    subscript, arrays = parse_subscript(tuple(x.shape), index, beyond=mode is not None)
    return update(x, arrays, values, subscript, op, mode or "drop")


def _check_options(options: dict[str, PyTree]) -> str | None:
    accepted = ("mode", "indices_are_sorted", "unique_indices", "wrap_negative_indices",
             "out_sharding")  # fmt: skip
    for option in options:
        if option not in accepted:
            raise ArgumentError(
                with_location(
                    f"an update takes no option {option!r}; it takes {', '.join(accepted[:3])}"
                )
            )
    if not options.get("wrap_negative_indices", True):
        raise ArgumentError(
            with_location(
                "negative indices count from the end, so wrap_negative_indices is True; give "
                "indices that are out of range above instead"
            )
        )
    mode: str | None = options.get("mode")
    if mode is not None and not is_one_of(mode, UPDATE_MODES):
        listed = ", ".join(UPDATE_MODES)
        raise ArgumentError(with_location(f"mode {brief(mode)} is unknown; the modes are {listed}"))
    return mode


def _mask_of_index(x: Operators, index: Any, values: Any) -> Any:
    """Return the mask, if it is the complete index and one value is assigned to all its
    elements.
    """
    if isinstance(index, tuple) and len(index) == 1:
        index = index[0]
    if not hasattr(index, "shape") or operand_dtype(index)[0] != "bool":
        return None
    rank = len(index.shape)
    if not rank or tuple(x.shape[:rank]) != tuple(index.shape):
        return None
    if len(getattr(values, "shape", np.shape(values))) > len(x.shape) - rank:
        return None
    return index
