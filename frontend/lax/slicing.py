"""Slices at static and dynamic indices, with the names of `jax.lax`."""

from collections.abc import Callable, Sequence
from functools import wraps
from operator import index
from typing import TypeAlias, TypeVar

import numpy as np

from shardir.errors import OperationTypeError, count_noun
from shardir.frontend.argument_checks import as_items, check_integer
from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.dispatch.composed import composed_function
from shardir.frontend.dispatch.eager import public
from shardir.frontend.dispatch.inspection import eval_shape
from shardir.frontend.lax.data_movement import expand_dims, squeeze
from shardir.frontend.numpy.indexing.index_vectors import wrap_negative_indices
from shardir.frontend.numpy.indexing.updates import convert_lossless
from shardir.frontend.numpy.tracer_helpers.axes import canonicalize_axis
from shardir.frontend.numpy.tracer_helpers.axis_slices import replace_dim_size
from shardir.frontend.numpy.tracer_helpers.concrete_values import as_ints
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.quoting import brief
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import as_tracer, splat, widen_indices
from shardir.frontend.tracing.trace import emit
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.types import INTEGERS, TensorType


@public(static=("start_indices", "limit_indices", "strides"))
def slice(
    operand: ArrayLike,
    start_indices: Sequence[int],
    limit_indices: Sequence[int],
    strides: Sequence[int] | None = None,
) -> Tracer:
    """Return the elements from `start_indices` up to `limit_indices` with the given strides."""
    x = as_tracer(operand)
    starts, limits = as_ints(start_indices), as_ints(limit_indices)
    steps = as_ints(strides) if strides is not None else (1,) * x.ndim
    if not len(starts) == len(limits) == len(steps) == x.ndim:
        raise OperationTypeError(
            with_location(
                "slice takes a start, a limit and a stride for each of "
                f"{count_noun(x.ndim, 'dimension')}"
            )
        )
    for d, (start, stop, n) in enumerate(zip(starts, limits, x.shape, strict=True)):
        if not 0 <= start <= stop <= n:
            raise OperationTypeError(
                with_location(
                    f"slice from {start} up to {stop} is not within dimension {d} of size {n}"
                )
            )
    spans = zip(starts, limits, steps, strict=True)
    shape = tuple(-(-(stop - start) // step) for start, stop, step in spans)
    result = x.value.type.with_shape(shape)
    return emit("slice", x, starts=starts, strides=steps, result=result, weak=x.weak_type)


@public(static=("start_index", "limit_index", "stride", "axis"))
def slice_in_dim(
    operand: ArrayLike,
    start_index: int | None,
    limit_index: int | None,
    stride: int = 1,
    axis: int = 0,
) -> Tracer:
    """Slice along one dimension; negative bounds count from its end, and `None` is its start or
    end.

    Raise `OperationTypeError` for bounds outside of the dimension, and an end before the start.
    """
    x = as_tracer(operand)
    dim = canonicalize_axis(axis, x.ndim)
    size = x.shape[dim]
    start = 0 if start_index is None else index(start_index)
    limit = size if limit_index is None else index(limit_index)
    return slice(
        x,
        replace_dim_size((0,) * x.ndim, dim, start + size if start < 0 else start),
        replace_dim_size(x.shape, dim, limit + size if limit < 0 else limit),
        replace_dim_size((1,) * x.ndim, dim, index(stride)),
    )


@public(static=("index", "axis", "keepdims"))
def index_in_dim(operand: ArrayLike, index: int, axis: int = 0, keepdims: bool = True) -> Tracer:
    """Return the slice at one static index along a dimension, which is kept with size 1 if
    `keepdims`.
    """
    x = as_tracer(operand)
    dim = canonicalize_axis(axis, x.ndim)
    if not -x.shape[dim] <= index < x.shape[dim]:
        raise OperationTypeError(
            with_location(f"index {index} is out of range for dimension {dim} of shape {x.shape}")
        )
    at = index % x.shape[dim]
    one = slice_in_dim(x, at, at + 1, 1, dim)
    return one if keepdims else squeeze(one, (dim,))


WrapNegative: TypeAlias = bool | Sequence[bool]
"""The type of an argument that states whether negative starts count from the end: one value for all
dimensions, or one for each dimension."""


def _wrapped_dims(
    allow_negative_indices: WrapNegative, indices: ArrayLike, rank: int, what: str
) -> list[bool]:
    """Return for each dimension whether negative starts count from the end.

    Raise `OperationTypeError` for a static start that is negative in another dimension.
    """
    if isinstance(allow_negative_indices, (bool, np.bool_)):
        given = [bool(allow_negative_indices)] * rank
    else:
        given = list(as_items(allow_negative_indices))
    if len(given) != rank or not all(isinstance(each, (bool, np.bool_)) for each in given):
        raise OperationTypeError(
            with_location(
                f"allow_negative_indices of {what} is a bool, or one for each of {rank} "
                f"dimensions, got {brief(allow_negative_indices)}"
            )
        )
    starts = zip(indices if isinstance(indices, (list, tuple)) else (), given, strict=False)
    for dim, (start, is_wrapped) in enumerate(starts):
        if isinstance(start, (int, np.integer)) and start < 0 and not is_wrapped:
            raise OperationTypeError(
                with_location(
                    f"start {start} of {what} in dimension {dim} is negative, and "
                    "allow_negative_indices is false"
                )
            )
    return given


Function = TypeVar("Function", bound=UserFunction)


def _with_checked_starts(parameter: str, position: int) -> Callable[[Function], Function]:
    """Decorate a public function whose argument `parameter`, at `position`, contains starts.

    Outside of a trace, the numbers among the starts are arguments of a program, whose values it
    cannot check. Where negative starts are not allowed, a trace of the call, in which the numbers
    are constants, therefore precedes it.
    """

    def decorate(fun: Function) -> Function:
        @composed_function(blind=True)
        @wraps(fun)
        def call_checked(*args: PyTree, **options: PyTree) -> PyTree:
            if options.get("allow_negative_indices", True) is not True:
                given = args[position] if len(args) > position else options.get(parameter)
                starts = given if isinstance(given, (list, tuple)) else (given,)
                if any(isinstance(start, (int, np.integer)) and start < 0 for start in starts):
                    eval_shape(lambda: fun(*args, **options))
            return fun(*args, **options)

        return call_checked  # type: ignore[return-value]

    return decorate


def _dynamic_starts(
    indices: ArrayLike, shape: Sequence[int], what: str, wraps: Sequence[bool]
) -> list[Tracer]:
    """Return one start per dimension, counted from the front."""
    if isinstance(indices, (list, tuple)):
        given = list(indices)
    else:
        packed = as_tracer(indices)
        if packed.ndim != 1:
            raise OperationTypeError(
                with_location(f"{what} takes starts as a vector or a list, got {packed.value.type}")
            )
        given = [packed[i] for i in range(packed.shape[0])]
    if len(given) != len(shape):
        raise OperationTypeError(
            with_location(
                f"{what} takes one start for each of {count_noun(len(shape), 'dimension')}, got "
                f"{len(given)}"
            )
        )
    found: list[Tracer | int] = []
    for start, size in zip(given, shape, strict=True):
        if isinstance(start, (int, np.integer)):
            found.append(max(0, int(start) + size) if start < 0 else int(start))
            continue
        tracer = as_tracer(start)
        if tracer.ndim or tracer.value.type.dtype not in INTEGERS:
            raise OperationTypeError(
                with_location(f"{what} starts at integers of rank 0, got {tracer.value.type}")
            )
        # Constant starts of other dimensions adopt the type of this one.
        found.append(widen_indices(tracer, max(shape)))
    dims = [dim for dim, x in enumerate(found) if isinstance(x, Tracer) and wraps[dim]]
    starts = list(found)
    sizes = [shape[dim] for dim in dims]
    for dim, wrapped in zip(
        dims, wrap_negative_indices([as_tracer(found[dim]) for dim in dims], sizes), strict=True
    ):
        starts[dim] = wrapped
    kind = next((x.value.type for x in starts if isinstance(x, Tracer)), TensorType((), "i32"))
    constants: dict[int, Tracer] = {}
    for x in starts:
        if not isinstance(x, Tracer) and x not in constants:
            constants[x] = splat(x, kind)
    return [x if isinstance(x, Tracer) else constants[x] for x in starts]


def _static_starts(
    indices: ArrayLike, shape: Sequence[int], sizes: Sequence[int]
) -> tuple[int, ...] | None:
    """Return starts that are all concrete, clamped; `None` if one is traced or does not fit."""
    if not isinstance(indices, (list, tuple)) or not len(indices) == len(shape) == len(sizes):
        return None
    if not all(isinstance(start, (int, np.integer)) for start in indices):
        return None
    if any(size > n for size, n in zip(sizes, shape, strict=True)):
        return None
    bounds = zip(indices, shape, sizes, strict=True)
    return tuple(
        max(0, min(int(start) + (n if start < 0 else 0), n - size)) for start, n, size in bounds
    )


@_with_checked_starts("start_indices", 1)
@public(static=("slice_sizes", "allow_negative_indices"))
def dynamic_slice(
    operand: ArrayLike,
    start_indices: ArrayLike,
    slice_sizes: Sequence[int],
    *,
    allow_negative_indices: WrapNegative = True,
) -> Tracer:
    """Return the slice of `slice_sizes` that starts at traced indices; the start is clamped.

    Negative starts count from the end, in the dimensions where `allow_negative_indices` is true. If
    all starts are concrete, a static slice is emitted, which needs less communication.
    """
    x = as_tracer(operand)
    result = x.value.type.with_shape(as_ints(slice_sizes))
    wraps = _wrapped_dims(allow_negative_indices, start_indices, x.ndim, "dynamic_slice")
    if (known := _static_starts(start_indices, x.shape, result.shape)) is not None:
        steps = (1,) * x.ndim
        return emit("slice", x, starts=known, strides=steps, result=result, weak=x.weak_type)
    starts = _dynamic_starts(start_indices, x.shape, "dynamic_slice", wraps)
    return emit("dynamic_slice", x, *starts, result=result, weak=x.weak_type)


@_with_checked_starts("start_indices", 2)
@public(static=("allow_negative_indices",))
def dynamic_update_slice(
    operand: ArrayLike,
    update: ArrayLike,
    start_indices: ArrayLike,
    *,
    allow_negative_indices: WrapNegative = True,
) -> Tracer:
    """Return `operand` with `update` written at traced indices; the start is clamped.

    Negative starts count from the end, in the dimensions where `allow_negative_indices` is true.
    """
    x = as_tracer(operand)
    new = convert_lossless(x, update)
    what = "dynamic_update_slice"
    wraps = _wrapped_dims(allow_negative_indices, start_indices, x.ndim, what)
    starts = _dynamic_starts(start_indices, x.shape, what, wraps)
    return emit("dynamic_update_slice", x, new, *starts, weak=False)


@_with_checked_starts("start_index", 1)
@public(static=("slice_size", "axis", "allow_negative_indices"))
def dynamic_slice_in_dim(
    operand: ArrayLike,
    start_index: ArrayLike,
    slice_size: int,
    axis: int = 0,
    *,
    allow_negative_indices: bool = True,
) -> Tracer:
    """Slice along one dimension at a traced start; see `dynamic_slice`."""
    x = as_tracer(operand)
    dim = canonicalize_axis(axis, x.ndim)
    starts: list[ArrayLike] = [0] * x.ndim
    starts[dim] = start_index
    sizes = replace_dim_size(
        x.shape, dim, check_integer("slice_size of dynamic_slice_in_dim", slice_size)
    )
    return dynamic_slice(x, starts, sizes, allow_negative_indices=allow_negative_indices)


@_with_checked_starts("index", 1)
@public(static=("axis", "keepdims", "allow_negative_indices"))
def dynamic_index_in_dim(
    operand: ArrayLike,
    index: ArrayLike,
    axis: int = 0,
    keepdims: bool = True,
    *,
    allow_negative_indices: bool = True,
) -> Tracer:
    """Return the slice at one traced index along a dimension, kept with size 1 if `keepdims`."""
    x = as_tracer(operand)
    dim = canonicalize_axis(axis, x.ndim)
    one = dynamic_slice_in_dim(x, index, 1, dim, allow_negative_indices=allow_negative_indices)
    return one if keepdims else squeeze(one, (dim,))


@_with_checked_starts("start_index", 2)
@public(static=("axis", "allow_negative_indices"))
def dynamic_update_slice_in_dim(
    operand: ArrayLike,
    update: ArrayLike,
    start_index: ArrayLike,
    axis: int,
    *,
    allow_negative_indices: bool = True,
) -> Tracer:
    """Update a slice along one dimension; see `dynamic_update_slice`."""
    x = as_tracer(operand)
    starts: list[ArrayLike] = [0] * x.ndim
    starts[canonicalize_axis(axis, x.ndim)] = start_index
    return dynamic_update_slice(x, update, starts, allow_negative_indices=allow_negative_indices)


@_with_checked_starts("index", 2)
@public(static=("axis", "allow_negative_indices"))
def dynamic_update_index_in_dim(
    operand: ArrayLike,
    update: ArrayLike,
    index: ArrayLike,
    axis: int,
    *,
    allow_negative_indices: bool = True,
) -> Tracer:
    """Replace the slice at one traced index along a dimension."""
    x, new = as_tracer(operand), as_tracer(update)
    if new.ndim < x.ndim:
        new = expand_dims(new, (canonicalize_axis(axis, x.ndim),))
    return dynamic_update_slice_in_dim(
        x, new, index, axis, allow_negative_indices=allow_negative_indices
    )
