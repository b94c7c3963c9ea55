"""Circular shifts along an axis."""

from collections.abc import Sequence
from typing import TypeVar

from shardir.errors import OperationTypeError, count_noun
from shardir.frontend.argument_checks import as_items, check_integers
from shardir.frontend.arrays.array_types import ArrayLike, AxisLike
from shardir.frontend.dispatch.composed import composed_function
from shardir.frontend.dispatch.eager import public
from shardir.frontend.numpy.elementwise import arithmetic
from shardir.frontend.numpy.reductions import basic_reductions
from shardir.frontend.numpy.tracer_helpers.axes import canonicalize_axis
from shardir.frontend.numpy.tracer_helpers.axis_slices import concatenate_parts, slice_dim
from shardir.frontend.numpy.tracer_helpers.concrete_values import as_ints, is_concrete
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import as_tracer, convert, reshape, splat
from shardir.frontend.tracing.trace import emit
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.types import INTEGERS

Shift = TypeVar("Shift", int, Tracer)


@composed_function()
def roll(a: ArrayLike, shift: ArrayLike, axis: AxisLike = None) -> Tracer:
    """Shift elements circularly by `shift` along `axis`; without `axis`, shift the flattened array.

    Several shifts correspond to several axes. Shifts may be traced.
    """
    if is_concrete(shift):
        return _roll_static(a, check_integers("shift of roll", as_items(shift)), axis)
    return _roll_traced(a, shift, axis)


@public(static=("shifts", "axis"), name="roll")
def _roll_static(a: ArrayLike, shifts: tuple[int, ...], axis: AxisLike) -> Tracer:
    x = as_tracer(a)
    if axis is None:
        return reshape(_roll_static(reshape(x, (x.size,)), (sum(shifts),), 0), x.shape)
    moves: dict[int, int] = {}
    for dim, by in _pair_axes_and_shifts(axis, x.ndim, shifts):
        moves[dim] = (moves.get(dim, 0) + by) % max(x.shape[dim], 1)
    return _rotate_dims(x, [(dim, by) for dim, by in moves.items() if by])


def _rotate_dims(x: Tracer, moves: Sequence[tuple[int, int]]) -> Tracer:
    """Exchange the end and the beginning of dimensions.

    All slices are taken before the concatenations, so that each element is copied once.
    """
    if not moves:
        return x
    (dim, by), *rest = moves
    size = x.shape[dim]
    halves = [slice_dim(x, dim, size - by, size), slice_dim(x, dim, 0, size - by)]
    return concatenate_parts([_rotate_dims(half, rest) for half in halves], dim)


@public(static=("axis",), name="roll")
def _roll_traced(a: ArrayLike, shift: ArrayLike, axis: AxisLike) -> Tracer:
    """Shift by traced amounts: a window of the array concatenated with itself."""

    x, by = as_tracer(a), as_tracer(shift)
    if by.value.type.dtype not in INTEGERS or by.ndim > 1:
        raise OperationTypeError(
            with_location(f"roll takes integers as shifts, got {by.value.type}")
        )
    if axis is None:
        return reshape(_roll_traced(reshape(x, (x.size,)), basic_reductions.sum(by), 0), x.shape)
    shifts = [by] if not by.ndim else [by[i] for i in range(by.shape[0])]
    for dim, move in _pair_axes_and_shifts(axis, x.ndim, shifts):
        size = x.shape[dim]
        start = arithmetic.remainder(-convert(move, "i32"), max(size, 1))
        zero = splat(0, start.value.type)
        starts = [start if d == dim else zero for d in range(x.ndim)]
        twice = concatenate_parts([x, x], dim)
        x = emit("dynamic_slice", twice, *starts, result=x.value.type, weak=x.weak_type)
    return x


def _pair_axes_and_shifts(
    axis: AxisLike, rank: int, shifts: Sequence[Shift]
) -> list[tuple[int, Shift]]:
    """Return pairs of dimension and shift; a dimension may occur several times, as in NumPy."""
    axes = [canonicalize_axis(each, rank) for each in as_ints(axis)]
    many = max(len(axes), len(shifts))
    if len(axes) not in (1, many) or len(shifts) not in (1, many):
        raise OperationTypeError(
            with_location(
                f"roll takes a shift for each axis, got {len(shifts)} for "
                f"{count_noun(len(axes), 'axis', 'axes')}"
            )
        )
    return [(axes[i % len(axes)], shifts[i % len(shifts)]) for i in range(many)]
