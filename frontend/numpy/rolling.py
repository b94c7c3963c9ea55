"""Circular shifts along an axis."""

from collections.abc import Sequence
from typing import Any

from shardir.errors import OperationTypeError
from shardir.frontend.composing import composed
from shardir.frontend.eager import public
from shardir.frontend.locations import point
from shardir.frontend.numpy.along import joined, piece
from shardir.frontend.numpy.axes import axis_of
from shardir.frontend.numpy.known import as_ints, is_known
from shardir.frontend.operands import as_tracer, convert, reshape, splat
from shardir.frontend.trace import emit
from shardir.frontend.tracer import Tracer
from shardir.types import INTEGERS


@composed()
def roll(a: Any, shift: Any, axis: Any = None) -> Any:
    """Shift elements circularly by `shift` along `axis`; without `axis`, shift the flattened array.

    Several shifts correspond to several axes. Shifts may be traced.
    """
    if is_known(shift):
        return _rolled(a, as_ints(shift), axis)
    return _rolled_by(a, shift, axis)


@public(static=("shifts", "axis"), name="roll")
def _rolled(a: Any, shifts: tuple[int, ...], axis: Any) -> Any:
    x = as_tracer(a)
    if axis is None:
        return reshape(_rolled(reshape(x, (x.size,)), (sum(shifts),), 0), x.shape)
    moves: dict[int, int] = {}
    for dim, by in _shifted(axis, x.ndim, shifts):
        moves[dim] = (moves.get(dim, 0) + by) % max(x.shape[dim], 1)
    return _turned(x, [(dim, by) for dim, by in moves.items() if by])


def _turned(x: Tracer, moves: Sequence[tuple[int, int]]) -> Tracer:
    """Exchange the end and the beginning of dimensions.

    All slices are taken before the concatenations, so that each element is copied once.
    """
    if not moves:
        return x
    (dim, by), *rest = moves
    size = x.shape[dim]
    halves = [piece(x, dim, size - by, size), piece(x, dim, 0, size - by)]
    return joined([_turned(half, rest) for half in halves], dim)


@public(static=("axis",), name="roll")
def _rolled_by(a: Any, shift: Any, axis: Any) -> Any:
    """Shift by traced amounts: a window of the array concatenated with itself."""
    from shardir.frontend import numpy as snp

    x, by = as_tracer(a), as_tracer(shift)
    if by.value.type.dtype not in INTEGERS or by.ndim > 1:
        raise OperationTypeError(point(f"roll takes whole numbers as shifts, got {by.value.type}"))
    if axis is None:
        return reshape(_rolled_by(reshape(x, (x.size,)), snp.sum(by), 0), x.shape)
    shifts = [by] if not by.ndim else [by[i] for i in range(by.shape[0])]
    for dim, move in _shifted(axis, x.ndim, shifts):
        size = x.shape[dim]
        start = snp.remainder(-convert(move, "i32"), max(size, 1))
        zero = splat(0, start.value.type)
        starts = [start if d == dim else zero for d in range(x.ndim)]
        x = emit("dynamic_slice", joined([x, x], dim), *starts, result=x.value.type)
    return x


def _shifted(axis: Any, rank: int, shifts: Sequence[Any]) -> list[tuple[int, Any]]:
    """Return pairs of dimension and shift; a dimension may occur several times, as in NumPy."""
    axes = [axis_of(each, rank) for each in as_ints(axis)]
    many = max(len(axes), len(shifts))
    if len(axes) not in (1, many) or len(shifts) not in (1, many):
        raise OperationTypeError(
            point(f"roll takes a shift for each axis, got {len(shifts)} for {len(axes)} axes")
        )
    return [(axes[i % len(axes)], shifts[i % len(shifts)]) for i in range(many)]
