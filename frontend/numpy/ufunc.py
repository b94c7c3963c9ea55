"""The class `ufunc`: a function of scalars that is applied to the elements of arrays.

The methods combine elements in the order of the axis, by a loop, unless a function has its own.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from shardir.errors import count_noun
from shardir.frontend.argument_checks import check_integer, check_not_in_place
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.arrays.array_types import ArrayLike, AxisLike, DTypeLike
from shardir.frontend.arrays.numpy_conversion import abstract_of
from shardir.frontend.call_signatures import call_user_function, with_method_errors
from shardir.frontend.dispatch.eager import public
from shardir.frontend.dispatch.inspection import eval_shape
from shardir.frontend.dispatch.traced_calls import check_traceable
from shardir.frontend.errors import ArgumentError, AxisError, ShapeError
from shardir.frontend.lax.control_flow.loops import scan
from shardir.frontend.numpy.creation import filling, ranges
from shardir.frontend.numpy.elementwise import (
    selection,
)
from shardir.frontend.numpy.reductions import basic_reductions
from shardir.frontend.numpy.shaping import concatenation, reshaping
from shardir.frontend.numpy.tracer_helpers.axes import canonicalize_axis
from shardir.frontend.pytree import tree
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.quoting import brief
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing import promotion
from shardir.frontend.tracing.operands import as_tracer, broadcast, broadcast_shapes, convert
from shardir.frontend.tracing.parameters import function_name
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.transforms.vmap import vmap
from shardir.ir.types import INTEGERS

Method: TypeAlias = Callable[..., Tracer]


class _UfuncType(type):
    """The type of `ufunc`, of which public functions with its methods count as instances."""

    def __instancecheck__(cls, instance: object) -> bool:
        return type.__instancecheck__(cls, instance) or type.__instancecheck__(
            cls, getattr(instance, "ufunc", None)
        )


@with_method_errors
class ufunc(metaclass=_UfuncType):
    """A function of scalars, which is applied to the elements of arrays that broadcast.

    `func` takes `nin` scalars and returns `nout`. `identity` is the value that does not change the
    other operand, or None. The optional functions replace the methods of the same name, which
    otherwise follow from `func`. Objects are equal if all arguments except these functions are
    equal. The arguments `out` and `where` of calls are refused with `ArgumentError`.
    """

    @with_argument_errors
    def __init__(
        self,
        func: UserFunction,
        /,
        nin: int,
        nout: int,
        *,
        name: str | None = None,
        nargs: int | None = None,
        identity: object = None,
        call: UserFunction | None = None,
        reduce: Method | None = None,
        accumulate: Method | None = None,
        at: Method | None = None,
        reduceat: Method | None = None,
    ) -> None:
        check_traceable(func, "ufunc")
        self._func = func
        self.__name__ = name or function_name(func)
        self.__doc__ = func.__doc__
        self._nin = check_integer("nin of ufunc", nin, 1)
        self._nout = check_integer("nout of ufunc", nout, 1)
        self._nargs = self._nin if nargs is None else check_integer("nargs of ufunc", nargs, 1)
        self._identity = identity
        self._own = {
            "call": call, "reduce": reduce, "accumulate": accumulate, "at": at,
            "reduceat": reduceat,
        }  # fmt: skip

    @property
    def nin(self) -> int:
        """The number of operands."""
        return self._nin

    @property
    def nout(self) -> int:
        """The number of results."""
        return self._nout

    @property
    def nargs(self) -> int:
        """The number of arguments."""
        return self._nargs

    @property
    def identity(self) -> Any:
        """The value that does not change the other operand, or None."""
        return self._identity

    def _key(self) -> tuple[object, ...]:
        return self._func, self.__name__, self._identity, self._nin, self._nout, self._nargs

    def __hash__(self) -> int:
        return hash(self._key())

    def __eq__(self, other: object) -> bool:
        return type(other) is ufunc and self._key() == other._key()

    def __repr__(self) -> str:
        return f"<ufunc {self.__name__!r}>"

    def __call__(
        self, *args: ArrayLike, out: None = None, where: ArrayLike | None = None
    ) -> PyTree:
        """Return the results for all elements of arrays that broadcast."""
        for word, given in (("out", out), ("where", where)):
            if given is not None:
                raise ArgumentError(
                    with_location(f"{self.__name__} has no argument {word}; use its result instead")
                )
        if len(args) != self._nin:
            raise ArgumentError(
                with_location(
                    f"{self.__name__} takes {count_noun(self._nin, 'operand')}, got {len(args)}"
                )
            )
        call = self._own["call"]
        return _apply_to_elements(self, args) if call is None else call(*args)

    def reduce(
        self,
        a: ArrayLike,
        axis: AxisLike = 0,
        dtype: DTypeLike | None = None,
        out: None = None,
        keepdims: bool = False,
        initial: ArrayLike | None = None,
        where: ArrayLike | None = None,
    ) -> Tracer:
        """Return the elements along `axis`, or all, combined in order, beginning with `initial`.

        `where` selects the elements. Functions that have a reduction, such as `logical_and`, accept
        several axes. Raise `ArgumentError` for a function that is not binary,
        for `out`, and for a selection or an empty axis without identity or initial value.
        """
        self._check_binary("reduce", out)
        if where is not None and initial is None and self._identity is None:
            raise ArgumentError(
                with_location(
                    f"{self.__name__} has no identity, so that reduce with where= needs initial="
                )
            )
        own = self._own["reduce"]
        if own is not None:
            return own(a, axis=axis, dtype=dtype, keepdims=keepdims, initial=initial, where=where)
        return _reduce_in_order(self, a, axis, dtype, keepdims, initial, where)

    def accumulate(
        self, a: ArrayLike, axis: int = 0, dtype: DTypeLike | None = None, out: None = None
    ) -> Tracer:
        """Return the results of `reduce` for all beginnings of the axis."""
        self._check_binary("accumulate", out)
        own = self._own["accumulate"]
        if own is not None and axis is not None and abstract_of(a).type.rank:
            return own(a, axis=axis, dtype=dtype)
        return _accumulate_in_order(self, a, axis, dtype)

    def at(
        self, a: ArrayLike, indices: PyTree, b: ArrayLike | None = None, /, *, inplace: bool = True
    ) -> Tracer:
        """Return `a` with the function applied to the elements at `indices`, and to those of `b`.

        An element whose index occurs several times is updated several times. Arrays do not change,
        so `inplace` must be false. Elements outside of the array are skipped.
        """
        check_not_in_place(f"{self.__name__}.at", inplace)
        operands = () if b is None else (b,)
        if self._nin != 1 + len(operands) or self._nout != 1:
            raise ArgumentError(
                with_location(
                    f"{self.__name__}.at takes {count_noun(self._nin - 1, 'operand')} after the "
                    f"indices, got {len(operands)}"
                )
            )
        own = self._own["at"]
        if own is not None:
            return own(a, indices, *operands)
        return _update_in_order(self, a, indices, operands)

    def reduceat(
        self,
        a: ArrayLike,
        indices: ArrayLike,
        axis: int = 0,
        dtype: DTypeLike | None = None,
        out: None = None,
    ) -> Tracer:
        """Return the result of `reduce` for each segment of the axis.

        Segment i is from `indices[i]` to the next index, or to the end; where the next index is
        not larger, it is the element `indices[i]` alone. The result for an index outside of the
        axis is NaN, or for integers the value that `x.at[i].get(mode="fill")` returns.
        """
        self._check_binary("reduceat", out)
        own = self._own["reduceat"]
        if own is not None:
            return own(a, indices, axis=axis, dtype=dtype)
        return _reduce_segments(self, a, indices, axis, dtype)

    def outer(self, A: ArrayLike, B: ArrayLike, /) -> Tracer:
        """Return the results for all pairs of elements: an array of shape (*A.shape, *B.shape)."""
        self._check_binary("outer", None)
        first, second = abstract_of(A).type.rank, abstract_of(B).type.rank
        rows = reshaping.expand_dims(A, tuple(range(first, first + second)))
        result: Tracer = self(rows, B)
        return result

    def _check_binary(self, method: str, out: object) -> None:
        if self._nin != 2 or self._nout != 1:
            raise ArgumentError(
                with_location(
                    f"{method} needs a function of two operands with one result, and "
                    f"{self.__name__} has {self._nin} and {self._nout}"
                )
            )
        if out is not None:
            raise ArgumentError(
                with_location(f"{self.__name__}.{method} has no argument out; use its result")
            )


@public(static=("function",), cached=False, name="ufunc")
def _apply_to_elements(function: ufunc, args: Sequence[ArrayLike]) -> PyTree:
    return _call(function, [as_tracer(x) for x in args])


def _call(function: ufunc, arrays: Sequence[Tracer]) -> PyTree:
    """Apply a function to elements, with one `vmap` for each dimension."""
    if (call := function._own["call"]) is not None:
        return call(*arrays)
    shape = broadcast_shapes(*(x.shape for x in arrays))

    def call_scalars(*scalars: Tracer) -> PyTree:
        result = call_user_function(function._func, function.__name__, scalars)
        found = result if isinstance(result, (tuple, list)) else (result,)
        if len(found) != function.nout:
            raise ArgumentError(
                with_location(
                    f"{function.__name__} returned {count_noun(len(found), 'result')}, and its "
                    f"ufunc has nout={function.nout}"
                )
            )
        made = tuple(as_tracer(each) for each in found)
        for each in made:
            if each.ndim:
                raise ShapeError(
                    with_location(
                        f"{function.__name__} returned an array of shape {each.shape} for scalars; "
                        "return scalars"
                    )
                )
        return made if function.nout > 1 else made[0]

    padded = [(1,) * (len(shape) - x.ndim) + x.shape for x in arrays]
    if 0 in shape:
        made = call_scalars(*(filling.ones((), x.dtype) for x in arrays))
        return tree.map(lambda each: filling.zeros(shape, each.dtype), made)
    mapped: UserFunction = call_scalars
    for dim in reversed(range(len(shape))):
        axes = tuple(None if sizes[dim] == 1 else 0 for sizes in padded)
        mapped = vmap(mapped, axes) if any(axis == 0 for axis in axes) else _add_dim(mapped)
    squeezed = [
        x.reshape([size for size in sizes if size != 1])
        for x, sizes in zip(arrays, padded, strict=True)
    ]
    return mapped(*squeezed)


def _add_dim(function: UserFunction) -> UserFunction:
    """Return a function whose results have a new first dimension of size 1."""
    return lambda *args: tree.map(lambda x: x.reshape(1, *x.shape), function(*args))


def combined_dtype(function: ufunc, x: Tracer, dtype: DTypeLike | None) -> str:
    """Return the element type of the function of two elements of `x`, or the requested one."""
    if dtype is not None:
        return promotion.dtype_of(dtype)
    one = filling.ones((), x.dtype)
    return promotion.dtype_of(
        eval_shape(lambda a, b: _call(function, [as_tracer(a), as_tracer(b)]), one, one).dtype
    )


@public(static=("function", "axis", "dtype", "keepdims"), cached=False, name="reduce")
def _reduce_in_order(
    function: ufunc, a: ArrayLike, axis: AxisLike, dtype: DTypeLike | None, keepdims: bool,
    initial: ArrayLike | None, where: ArrayLike | None,
) -> Tracer:  # fmt: skip
    x, mask = as_tracer(a), None if where is None else basic_reductions.as_mask(where)
    if isinstance(axis, (tuple, list)):
        raise AxisError(
            with_location(f"{function.__name__}.reduce takes one axis or None, got {brief(axis)}")
        )
    if mask is not None:
        mask = broadcast(mask, x.shape)
    kind = combined_dtype(function, x, dtype)
    if axis is None:
        kept = (1,) * x.ndim
        rows = x.reshape(-1)
        mask = None if mask is None else mask.reshape(-1)
    else:
        dim = canonicalize_axis(axis, x.ndim)
        kept = tuple(1 if d == dim else n for d, n in enumerate(x.shape))
        rows = reshaping.moveaxis(x, dim, 0)
        mask = None if mask is None else reshaping.moveaxis(mask, dim, 0)
    rows = convert(rows, kind)
    start = function.identity if initial is None else initial
    if start is None:
        if not rows.shape[0]:
            raise ArgumentError(
                with_location(
                    f"{function.__name__}.reduce has no element and no identity; pass initial="
                )
            )
        first, rows = rows[0], rows[1:]
    else:
        first = broadcast(convert(as_tracer(start), kind), rows.shape[1:])

    def step(total: Tracer, row: PyTree) -> tuple[Tracer, None]:
        element, chosen = row
        new = convert(as_tracer(_call(function, [total, element])), kind)
        return new if chosen is None else selection.where(chosen, new, total), None

    total, _ = scan(step, first, (rows, mask), length=rows.shape[0])
    return as_tracer(total.reshape(kept) if keepdims else total)


def _rows_along(
    method: str, function: ufunc, x: Tracer, axis: int, dtype: DTypeLike | None
) -> tuple[Tracer, int, str]:
    """Return the elements along one axis, which becomes the first, in the dtype that a method of
    `function` combines; that axis, and the dtype."""
    if axis is None or isinstance(axis, (tuple, list)) or not x.ndim:
        raise AxisError(
            with_location(
                f"{function.__name__}.{method} takes one axis of an array, got {brief(axis)} and "
                f"shape {x.shape}"
            )
        )
    dim = canonicalize_axis(axis, x.ndim)
    kind = combined_dtype(function, x, dtype)
    return convert(reshaping.moveaxis(x, dim, 0), kind), dim, kind


@public(static=("function", "axis", "dtype"), cached=False, name="accumulate")
def _accumulate_in_order(
    function: ufunc, a: ArrayLike, axis: int, dtype: DTypeLike | None
) -> Tracer:
    x = as_tracer(a)
    rows, dim, kind = _rows_along("accumulate", function, x, axis, dtype)
    if not rows.shape[0]:
        return reshaping.moveaxis(rows, 0, dim)

    def step(total: Tracer, element: Tracer) -> tuple[Tracer, Tracer]:
        new = convert(as_tracer(_call(function, [total, element])), kind)
        return new, new

    _, rest = scan(step, rows[0], rows[1:])
    return as_tracer(reshaping.moveaxis(concatenation.concatenate([rows[:1], rest]), 0, dim))


@public(static=("function",), cached=False, name="at")
def _update_in_order(
    function: ufunc, a: ArrayLike, indices: PyTree, operands: Sequence[ArrayLike]
) -> Tracer:
    x = as_tracer(a)
    # An index that is outside of the array stands for the position after its last element.
    positions = ranges.arange(x.size).reshape(x.shape)
    places = positions.at[indices].get(mode="fill", fill_value=x.size)
    others = [broadcast(as_tracer(each), places.shape).reshape(-1) for each in operands]
    kind = x.value.type.dtype

    def step(flat: Tracer, row: PyTree) -> tuple[Tracer, None]:
        place, rest = row
        element = flat.at[place].get(mode="clip")
        new = convert(as_tracer(_call(function, [element, *rest])), kind)
        return flat.at[place].set(new, mode="drop"), None

    if not x.size:
        return x
    flat, _ = scan(step, x.reshape(-1), (places.reshape(-1), others))
    return as_tracer(flat.reshape(x.shape))


@public(static=("function", "axis", "dtype"), cached=False, name="reduceat")
def _reduce_segments(
    function: ufunc, a: ArrayLike, indices: ArrayLike, axis: int, dtype: DTypeLike | None
) -> Tracer:
    x, starts = as_tracer(a), as_tracer(indices)
    if starts.ndim != 1 or starts.value.type.dtype not in INTEGERS:
        raise ArgumentError(
            with_location(
                f"{function.__name__}.reduceat takes a vector of integers as indices, got "
                f"{starts.value.type}"
            )
        )
    rows, dim, kind = _rows_along("reduceat", function, x, axis, dtype)
    size, count = rows.shape[0], starts.shape[0]
    if not count:
        return reshaping.moveaxis(filling.zeros((0, *rows.shape[1:]), rows.dtype), 0, dim)
    # No step changes the fill value of a segment whose start is outside of the axis.
    first = rows.at[starts].get(mode="fill")
    starts = selection.where(starts < 0, starts + size, starts)
    following = concatenation.concatenate(
        [starts[1:], as_tracer(np.full(1, size)).astype(starts.dtype)]
    )
    stops = selection.where(following > starts, following, starts + 1)
    starts = selection.where(starts < 0, size, starts)
    wide = (count, *(1 for _ in rows.shape[1:]))

    def step(totals: Tracer, row: PyTree) -> tuple[Tracer, None]:
        number, element = row
        elements = broadcast(element.reshape(1, *element.shape), totals.shape)
        new = convert(as_tracer(_call(function, [totals, elements])), kind)
        is_first = (number == starts).reshape(wide)
        is_inside = ((number > starts) & (number < stops)).reshape(wide)
        rest = selection.where(is_inside, new, totals)
        return selection.where(is_first, elements, rest), None

    numbers = ranges.arange(size, dtype=starts.dtype)
    totals, _ = scan(step, first, (numbers, rows))
    return as_tracer(reshaping.moveaxis(totals, 0, dim))
