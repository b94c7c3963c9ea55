"""Padding of arrays with constants, edge elements, reflections, ramps or statistics."""

from collections.abc import Callable, Sequence
from functools import partial
from operator import index
from typing import Any

import numpy as np

from shardir.errors import OperationTypeError, ShardirError, count_noun
from shardir.frontend.argument_checks import is_one_of
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.arrays.numpy_conversion import is_number
from shardir.frontend.call_signatures import call_user_function
from shardir.frontend.dispatch.eager import public
from shardir.frontend.dispatch.traced_calls import array_result
from shardir.frontend.errors import ShapeError
from shardir.frontend.numpy.elementwise import arithmetic, rounding
from shardir.frontend.numpy.function_application import apply_along_axis
from shardir.frontend.numpy.reductions import basic_reductions, quantiles
from shardir.frontend.numpy.tracer_helpers.axes import canonicalize_axis
from shardir.frontend.numpy.tracer_helpers.axis_slices import (
    concatenate_parts,
    repeat_slice,
    replace_dim_size,
    slice_dim,
)
from shardir.frontend.numpy.tracer_helpers.concrete_values import to_hashable
from shardir.frontend.numpy.tracer_helpers.inspection import tensor_type_of
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.quoting import brief
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import (
    as_tracer,
    broadcast,
    convert,
    operand_dtype,
    reshape,
    splat,
)
from shardir.frontend.tracing.promotion import check_keys_mix
from shardir.frontend.tracing.trace import emit
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.dtypes import KEYS
from shardir.ir.key_implementations import KEY_IMPLEMENTATIONS
from shardir.ir.types import INTEGERS, NUMPY_DTYPES, TensorType

SidePair = tuple[Any, Any]
"""The values for the two sides of a dimension."""

_MODE_OPTIONS = {
    "constant": ("constant_values",),
    "empty": (),
    "edge": (),
    "wrap": (),
    "linear_ramp": ("end_values",),
    "reflect": ("reflect_type",),
    "symmetric": ("reflect_type",),
    "maximum": ("stat_length",),
    "mean": ("stat_length",),
    "median": ("stat_length",),
    "minimum": ("stat_length",),
}
"""The modes, and the options of each."""


@with_argument_errors
def pad(
    array: ArrayLike,
    pad_width: object,
    mode: str | UserFunction = "constant",
    **options: PyTree,
) -> Tracer:
    """Pad `array` by NumPy's rules.

    `pad_width` is one width, a pair (before, after), a pair per dimension, or a dict from axes to
    them. `mode` is "constant" (`constant_values`, by default 0), "empty" (zeros), "edge", "wrap",
    "linear_ramp" (`end_values`), "reflect" and "symmetric" (`reflect_type` "even" or "odd"),
    "maximum", "mean", "median" or "minimum" (of `stat_length` elements from each end). The values
    may be traced. A function as mode is called as `mode(line, (before, after), axis, options)` for
    each line along each axis, padded with zeros, and returns the padded line. Raise
    `OperationTypeError` for other modes and options.
    """
    rank = tensor_type_of(array).rank
    if callable(mode):
        widths = _checked_widths(pad_width, rank)
        padded = _pad_constant(array, 0, widths)
        for axis, width in enumerate(widths):
            apply = partial(_pad_line, mode, width, axis, options)
            padded = apply_along_axis(apply, axis, padded)
        return padded
    if not is_one_of(mode, _MODE_OPTIONS):
        raise OperationTypeError(
            with_location(
                f"pad mode {brief(mode)} is unknown; the modes are {', '.join(_MODE_OPTIONS)}"
            )
        )
    for option in options:
        if option not in _MODE_OPTIONS[mode]:
            known = ", ".join(_MODE_OPTIONS[mode]) or "none"
            raise OperationTypeError(
                with_location(
                    f"pad with mode {mode!r} has no option {option!r}; its options are: {known}"
                )
            )
    widths = _checked_widths(pad_width, rank)
    if mode == "constant":
        return _pad_constant(array, options.get("constant_values", 0), widths)
    if mode == "linear_ramp":
        return _pad_linear_ramp(array, options.get("end_values", 0), widths)
    reflection = options.get("reflect_type", "even")
    if not is_one_of(reflection, ("even", "odd")):
        raise OperationTypeError(
            with_location(f"reflect_type {brief(reflection)} is unknown; it is 'even' or 'odd'")
        )
    length = options.get("stat_length")
    lengths = None if length is None else tuple(_pad_widths(length, rank))
    return _pad_static_mode(array, widths, mode, reflection, lengths)


def _pad_line(
    mode: UserFunction, width: tuple[int, int], axis: int, options: dict[str, PyTree], line: Tracer
) -> Tracer:
    what = "the function of pad"
    result = array_result(call_user_function(mode, what, (line, width, axis, options)), what)
    if result.shape != line.shape:
        raise ShapeError(
            with_location(
                f"{what} returned {result.value.type} for a line of shape {line.shape}; return all "
                "elements of the padded line"
            )
        )
    return result


def _checked_widths(pad_width: object, rank: int) -> tuple[tuple[int, int], ...]:
    """Return the widths of each dimension; raise `OperationTypeError` if one is negative."""
    widths = tuple(_pad_widths(pad_width, rank))
    if any(low < 0 or high < 0 for low, high in widths):
        raise OperationTypeError(with_location(f"pad widths cannot be negative, got {pad_width}"))
    return widths


def _pad_widths(width: Any, rank: int) -> list[tuple[int, int]]:
    try:
        if not isinstance(width, dict):
            return [
                (index(low), index(high)) for low, high in _expand_sides(to_hashable(width), rank)
            ]
        result: list[tuple[int, int]] = [(0, 0)] * rank
        for axis, one in width.items():
            low, high = _as_pair(list(to_hashable(one)) if _is_sequence(one) else [one])
            result[canonicalize_axis(axis, rank)] = (index(low), index(high))
        return result
    except ShardirError:
        raise
    except (TypeError, ValueError, OverflowError):
        raise OperationTypeError(
            with_location(
                f"pad takes a width, a pair of widths, or {count_noun(rank, 'pair')} of them, got "
                f"{brief(width)}"
            )
        ) from None


def _expand_sides(values: Any, rank: int) -> list[SidePair]:
    """Return the value of each side of each dimension; raise `ValueError` if the numbers
    disagree.
    """
    if not _is_sequence(values):
        return [(values, values)] * rank
    items = [values[i] for i in range(len(values))]
    if not any(map(_is_sequence, items)):
        return [_as_pair(items)] * rank
    pairs = [_as_pair(list(item) if _is_sequence(item) else [item]) for item in items]
    if len(pairs) not in (1, rank):
        raise ValueError
    return pairs * rank if len(pairs) == 1 else pairs


def _is_sequence(values: ArrayLike) -> bool:
    return isinstance(values, (list, tuple)) or getattr(values, "shape", ()) != ()


def _as_pair(items: Sequence[object]) -> SidePair:
    if len(items) not in (1, 2):
        raise ValueError
    return items[0], items[-1]


@public(static=("widths",), name="pad")
def _pad_constant(array: ArrayLike, values: ArrayLike, widths: tuple[SidePair, ...]) -> Tracer:
    x = as_tracer(array)
    sides = _expand_values(values, x.ndim, "constant_values")
    first = sides[0][0] if sides else 0
    if all(_is_equal_value(value, first) for side in sides for value in side):
        low, high = zip(*widths, strict=True) if widths else ((), ())
        return _emit_pad(x, first, low, high)
    for dim, ((low, high), (before, after)) in enumerate(zip(widths, sides, strict=True)):
        none = (0,) * x.ndim
        x = _emit_pad(x, before, replace_dim_size(none, dim, low), none)
        x = _emit_pad(x, after, none, replace_dim_size(none, dim, high))
    return x


def _is_equal_value(value: ArrayLike, other: ArrayLike) -> bool:
    return value is other or (is_number(value) and is_number(other) and value == other)


def _expand_values(values: ArrayLike, rank: int, what: str) -> list[SidePair]:
    try:
        return _expand_sides(values, rank)
    except ValueError:
        raise OperationTypeError(
            with_location(
                f"{what} is one value, a pair (before, after), or "
                f"{count_noun(rank, 'pair')} of them"
            )
        ) from None


def _emit_pad(x: Tracer, value: ArrayLike, low: Sequence[int], high: Sequence[int]) -> Tracer:
    if not any(low) and not any(high):
        return x
    dtype = x.value.type.dtype
    if dtype in KEYS:
        _check_key(value, dtype)
    number = NUMPY_DTYPES[dtype].type(value).item() if is_number(value) else 0
    filler = (
        splat(number, TensorType((), dtype), x.weak_type)
        if is_number(value)
        else convert(as_tracer(value), dtype)
    )
    between = (0,) * x.ndim
    result: Tracer = emit(
        "pad", x, filler, low=tuple(low), high=tuple(high), interior=between, weak=x.weak_type
    )
    return result


def _check_key(value: ArrayLike, dtype: str) -> None:
    """Raise `OperationTypeError` if keys are padded with a number or another array."""
    got, _ = operand_dtype(value)
    if got not in KEYS:
        name = KEY_IMPLEMENTATIONS[dtype].name
        raise OperationTypeError(
            with_location(
                f"pad cannot fill an array of random keys with {got}; pass a key, as in "
                f"constant_values=random.key(0, impl={name!r}), or pad with mode='edge'"
            )
        )
    check_keys_mix(dtype, got)


@public(static=("widths",), name="pad")
def _pad_linear_ramp(array: ArrayLike, values: ArrayLike, widths: tuple[SidePair, ...]) -> Tracer:
    x = as_tracer(array)
    sides = _expand_values(values, x.ndim, "end_values")
    for dim, ((low, high), (before, after)) in enumerate(zip(widths, sides, strict=True)):
        x = _add_borders(x, dim, low, high, partial(_ramp_border, x, dim, (before, after)))
    return x


def _add_borders(
    x: Tracer, dim: int, low: int, high: int, border: Callable[[int, bool], Tracer]
) -> Tracer:
    """Concatenate the borders `border(width, first)`, if they have a width, around `x`."""
    before = [border(low, True)] if low else []
    after = [border(high, False)] if high else []
    return concatenate_parts([*before, x, *after], dim)


def _edge_border(x: Tracer, dim: int, width: int, first: bool) -> Tracer:
    return repeat_slice(x, dim, 0 if first else x.shape[dim] - 1, width)


def _ramp_border(x: Tracer, dim: int, ends: SidePair, width: int, first: bool) -> Tracer:
    """Return a linear ramp from the end value to the edge elements, which are `width` steps
    away.
    """
    dtype, count = x.value.type.dtype, width
    edge = _edge_border(x, dim, 1, first)
    end = convert(as_tracer(ends[0] if first else ends[1]), dtype)
    shape = replace_dim_size((1,) * x.ndim, dim, width)
    steps = np.arange(width) if first else np.arange(width)[::-1]
    factors = as_tracer(steps.reshape(shape).astype(NUMPY_DTYPES[dtype]))
    difference = (edge - end) * factors
    part = arithmetic.floor_divide(difference, count) if dtype in INTEGERS else difference / count
    return convert(end + part, dtype, x.weak_type)


@public(static=("widths", "mode", "reflection", "lengths"), name="pad")
def _pad_static_mode(
    array: ArrayLike,
    widths: tuple[SidePair, ...],
    mode: str,
    reflection: str,
    lengths: tuple[SidePair, ...] | None,
) -> Tracer:
    x = as_tracer(array)
    for dim, (low, high) in enumerate(widths):
        if not low and not high:
            continue
        if not x.shape[dim] and mode != "empty":
            raise OperationTypeError(
                with_location(
                    f"pad with mode {mode!r} copies elements of the array, and its dimension {dim} "
                    "has none; use mode='constant'"
                )
            )
        match mode:
            case "empty":
                none = (0,) * x.ndim
                x = _emit_pad(
                    x, 0, replace_dim_size(none, dim, low), replace_dim_size(none, dim, high)
                )
            case "edge":
                x = _add_borders(x, dim, low, high, partial(_edge_border, x, dim))
            case "wrap":
                x = _pad_wrap(x, dim, low, high)
            case "reflect" | "symmetric":
                x = _pad_reflect(x, dim, low, high, mode == "symmetric", reflection == "odd")
            case _:
                length = lengths[dim] if lengths else (x.shape[dim], x.shape[dim])
                x = _add_borders(
                    x, dim, low, high, partial(_statistic_border, x, dim, mode, length)
                )
    return x


def _pad_wrap(x: Tracer, dim: int, low: int, high: int) -> Tracer:
    """Return whole copies of x, between the end of one more copy and the start of another."""
    size = x.shape[dim]
    count = low // size + 1 + high // size
    shape, repeated_shape = list(x.shape), list(x.shape)
    shape.insert(dim, 1)
    repeated_shape.insert(dim, count)
    copies = x
    if count > 1:
        copies = broadcast(reshape(x, shape), repeated_shape)
        copies = reshape(copies, replace_dim_size(x.shape, dim, count * size))
    parts = (slice_dim(x, dim, size - low % size, size), copies, slice_dim(x, dim, 0, high % size))
    return concatenate_parts([part for part in parts if part.shape[dim]], dim)


def _pad_reflect(x: Tracer, dim: int, low: int, high: int, edge: bool, odd: bool) -> Tracer:
    """Reflect at both ends as often as the widths require; `edge` repeats the edge elements.

    `odd` also negates the reflections around the edge elements.
    """
    if x.shape[dim] == 1 and not edge:
        return concatenate_parts(
            [repeat_slice(x, dim, 0, low), x, repeat_slice(x, dim, 0, high)], dim
        )
    while low or high:
        size, skip = x.shape[dim], int(not edge)
        low_width, high_width = min(low, size - skip), min(high, size - skip)
        before = emit("reverse", slice_dim(x, dim, skip, skip + low_width), dims=(dim,))
        after = emit(
            "reverse", slice_dim(x, dim, size - skip - high_width, size - skip), dims=(dim,)
        )
        if odd:
            before = 2 * slice_dim(x, dim, 0, 1) - before
            after = 2 * slice_dim(x, dim, size - 1, size) - after
        x = concatenate_parts([part for part in (before, x, after) if part.shape[dim]], dim)
        low, high = low - low_width, high - high_width
    return x


_STATISTICS: dict[str, UserFunction] = {
    "maximum": basic_reductions.max,
    "mean": basic_reductions.mean,
    "median": quantiles.median,
    "minimum": basic_reductions.min,
}


def _statistic_border(
    x: Tracer, dim: int, mode: str, lengths: SidePair, width: int, first: bool
) -> Tracer:
    """Return the statistic of the elements at one end, repeated `width` times."""
    size, dtype = x.shape[dim], x.value.type.dtype
    count = min(lengths[0] if first else lengths[1], size)
    if count < 1:
        raise OperationTypeError(with_location(f"stat_length must be at least 1, got {count}"))
    part = slice_dim(x, dim, 0, count) if first else slice_dim(x, dim, size - count, size)
    value = _STATISTICS[mode](part, axis=dim, keepdims=True)
    if value.value.type.dtype != dtype:
        value = rounding.round(value)
    value = convert(value, dtype, x.weak_type)
    return broadcast(value, replace_dim_size(x.shape, dim, width))
