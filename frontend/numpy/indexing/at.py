"""Functional updates: `x.at[...].set(y)` is a copy of `x` with the indexed elements replaced.

The index is the same as in `x[...]`. Elements out of range are not updated.
"""

from collections.abc import Callable
from typing import Any, NoReturn, final

import numpy as np

from shardir.frontend.argument_checks import check_flag, is_one_of
from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.arrays.operators import Operators, immutable_error
from shardir.frontend.call_signatures import call_user_function, with_method_errors
from shardir.frontend.dispatch.composed import composed_function
from shardir.frontend.dispatch.traced_calls import array_result
from shardir.frontend.errors import ArgumentError, ShapeError, UnknownMethod
from shardir.frontend.lax.control_flow.loops import while_loop
from shardir.frontend.numpy.creation import filling
from shardir.frontend.numpy.elementwise import arithmetic
from shardir.frontend.numpy.elementwise.selection import where
from shardir.frontend.numpy.indexing.getitem import getitem_with_mode
from shardir.frontend.numpy.indexing.subscripts import parse_subscript
from shardir.frontend.numpy.indexing.updates import update, update_masked
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.quoting import brief
from shardir.frontend.shardings.resharding import call_with_out_sharding
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import as_tracer, operand_dtype
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.transforms.vmap import vmap

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
        raise immutable_error()

    def __getattr__(self, name: str) -> NoReturn:
        raise UnknownMethod(
            with_location(f"x.at has no attribute {name!r}; write x.at[index].{name}")
        )

    def __repr__(self) -> str:
        return f"At({self._array!r})"


@with_method_errors
@final
class IndexedUpdate:
    """The object `x.at[index]`, which reads a part of an array or updates it in a copy.

    All methods accept `mode` for indices out of range: updates are dropped ("drop", "fill",
    "promise_in_bounds", the default) or applied to the nearest element ("clip"). A concrete integer
    out of range raises `IndexingError` unless a mode is given or the setting
    `check_static_indices` is false. Negative indices count from the end
    unless `wrap_negative_indices` is false; they are out of range then. `indices_are_sorted` and
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
        """Apply `ufunc`, a function of one element, as often as the index names each element.

        `unique_indices=True` states that index arrays name each element at most once. Without it,
        they have no derivative in reverse mode, because the number of applications is unknown.
        """
        wraps = _wraps(options)
        mode = None if _check_options(options) is None else "clip"
        current = self.get(mode=mode, wrap_negative_indices=wraps)
        result = self._apply_update("set", _map_elements(ufunc, current), options)
        if options.get("unique_indices") or not _may_repeat(self._index):
            return result
        zeros = filling.zeros(self._array.shape, "int32")
        numbers = {name: options[name] for name in options if name != "out_sharding"}
        counts = IndexedUpdate(zeros, self._index).add(1, **numbers)

        def apply_again(state: tuple[Tracer, Tracer]) -> tuple[Tracer, Tracer]:
            array, left = state
            return as_tracer(where(left > 0, _map_elements(ufunc, array), array)), left - 1

        repeated = while_loop(lambda state: (state[1] > 0).any(), apply_again, (result, counts - 1))
        final: Tracer = repeated[0]
        return final

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
            _wraps(options),
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
        if not options:
            return _update(self._array, self._index, values, op, None, True)
        return call_with_out_sharding(
            options.get("out_sharding"),
            _update,
            self._array,
            self._index,
            values,
            op,
            _check_options(options),
            _wraps(options),
        )

    def __repr__(self) -> str:
        return f"IndexedUpdate({self._array!r}, {self._index!r})"


def _map_elements(ufunc: Callable[[PyTree], PyTree], array: Tracer) -> Tracer:
    """Return the results of a function of one element for all elements of an array."""
    what = "the function of at[...].apply"

    def apply(element: Tracer) -> Tracer:
        result = array_result(call_user_function(ufunc, what, (element,)), what)
        if result.shape:
            raise ShapeError(
                with_location(
                    f"{what} is called with one element at a time, and returned "
                    f"{result.value.type}; return one element"
                )
            )
        return result

    apply.__name__ = what
    found: Tracer = vmap(apply)(array.reshape(-1)).reshape(array.shape)
    return found


def _may_repeat(index: PyTree) -> bool:
    """Return whether an index has arrays of integers, which may name an element several times."""
    for item in index if isinstance(index, tuple) else (index,):
        if isinstance(item, (list, tuple)):
            if len(item) > 1:
                return True
        elif len(getattr(item, "shape", ())) and operand_dtype(item)[0] != "bool":
            return True
    return False


@composed_function()
def _update(
    x: Tracer, index: ArrayLike, values: ArrayLike, op: str, mode: str | None, wraps: bool
) -> Tracer:
    """Return a copy of `x` with the indexed part updated."""
    mask = _mask_of_index(x, index, values)
    if mask is not None:
        return update_masked(x, mask, values, op)
    beyond = mode is not None or not wraps
    subscript, arrays = parse_subscript(tuple(x.shape), index, beyond, wraps)
    return update(x, arrays, values, subscript, op, mode or "drop")


def _wraps(options: dict[str, PyTree]) -> bool:
    """Return whether negative indices count from the end."""
    given = options.get("wrap_negative_indices")
    return given is None or check_flag("wrap_negative_indices", given)


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
