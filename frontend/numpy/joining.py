"""Concatenation of arrays, and splits of an array into parts."""

import itertools
from typing import Any

import numpy as np

from shardir.errors import OperationTypeError
from shardir.frontend.eager import public
from shardir.frontend.locations import point
from shardir.frontend.numpy.along import joined, piece
from shardir.frontend.numpy.axes import axis_of
from shardir.frontend.numpy.inspection import type_of
from shardir.frontend.numpy.known import frozen
from shardir.frontend.numpy.pointwise import common, known
from shardir.frontend.operands import as_tracer, convert, promote_to, reshape
from shardir.frontend.promotion import dtype_of
from shardir.frontend.tracer import Tracer

MOST = 1 << 16
"""The maximum number of parts if there are fewer elements; each part is an operation."""


def _promoted(arrays: Any, what: str, dtype: Any = None) -> list[Tracer]:
    if isinstance(arrays, Tracer) or hasattr(arrays, "shape"):
        array = as_tracer(arrays)
        if not array.ndim:
            raise OperationTypeError(point(f"{what} takes several arrays, got a scalar"))
        arrays = [array[i] for i in range(array.shape[0])]
    if not len(arrays):
        raise OperationTypeError(point(f"{what} takes at least one array"))
    arrays = known(*arrays)
    tracers = list(promote_to(common(*arrays), *arrays))
    return [convert(x, dtype_of(dtype)) for x in tracers] if dtype is not None else tracers


@public(static=("axis", "dtype"))
def concatenate(arrays: Any, axis: int | None = 0, dtype: Any = None) -> Any:
    """Concatenate arrays along `axis`; without an axis, concatenate the flattened arrays.

    All other dimensions must agree. The result has the promoted element type, or `dtype`.
    """
    parts = _promoted(arrays, "concatenate", dtype)
    if axis is None:
        parts, axis = [reshape(x, (x.size,)) for x in parts], 0
    if not parts[0].ndim:
        raise OperationTypeError(point("scalars cannot be concatenated; use stack"))
    dim = axis_of(axis, parts[0].ndim)
    first_shape = parts[0].shape
    for x in parts[1:]:
        same = x.ndim == len(first_shape) and all(
            n == m for d, (n, m) in enumerate(zip(x.shape, first_shape, strict=True)) if d != dim
        )
        if not same:
            raise OperationTypeError(
                point(
                    f"arrays of shapes {first_shape} and {x.shape} cannot be concatenated along "
                    f"axis {dim}; all other dimensions must agree"
                )
            )
    return joined(parts, dim)


concat = concatenate


@public(static=("axis", "dtype"))
def stack(arrays: Any, axis: int = 0, dtype: Any = None) -> Any:
    """Stack arrays of one shape along a new dimension."""
    parts = _promoted(arrays, "stack", dtype)
    shape = parts[0].shape
    for x in parts:
        if x.shape != shape:
            raise OperationTypeError(
                point(f"stack takes arrays of one shape, got {shape} and {x.shape}")
            )
    dim = axis_of(axis, len(shape) + 1)
    grown = (*shape[:dim], 1, *shape[dim:])
    return concatenate([reshape(x, grown) for x in parts], dim)


@public(static=("dtype",))
def vstack(tup: Any, dtype: Any = None) -> Any:
    """Concatenate along the first dimension; vectors become rows."""
    parts = [reshape(x, (1,) * (2 - x.ndim) + x.shape) for x in _promoted(tup, "vstack", dtype)]
    return concatenate(parts, 0)


@public(static=("dtype",))
def hstack(tup: Any, dtype: Any = None) -> Any:
    """Concatenate along the second dimension; vectors along their only one."""
    parts = [reshape(x, x.shape or (1,)) for x in _promoted(tup, "hstack", dtype)]
    return concatenate(parts, 0 if parts[0].ndim == 1 else 1)


@public(static=("dtype",))
def dstack(tup: Any, dtype: Any = None) -> Any:
    """Concatenate along the third dimension."""
    from shardir.frontend.numpy.manipulation import atleast_3d

    return concatenate([atleast_3d(x) for x in _promoted(tup, "dstack", dtype)], 2)


@public()
def column_stack(tup: Any) -> Any:
    """Concatenate along the second dimension; vectors become columns."""
    parts = [reshape(x, (x.size, 1)) if x.ndim < 2 else x for x in _promoted(tup, "column_stack")]
    return concatenate(parts, 1)


@public(static=("axis",))
def append(arr: Any, values: Any, axis: int | None = None) -> Any:
    """Append `values` to `arr` along `axis`; without it, both are flattened."""
    return concatenate([arr, values], axis)


@public()
def block(arrays: Any) -> Any:
    """Concatenate nested lists of blocks, the innermost lists along the last dimension."""

    def depth(x: Any) -> int:
        return 1 + max(map(depth, x)) if isinstance(x, (list, tuple)) else 0

    def rank(x: Any) -> int:
        return max(map(rank, x)) if isinstance(x, (list, tuple)) else as_tracer(x).ndim

    levels = depth(arrays)
    dims = max(levels, rank(arrays))

    def assemble(x: Any, level: int) -> Any:
        if isinstance(x, (list, tuple)):
            return concatenate([assemble(part, level - 1) for part in x], dims - level)
        tracer = as_tracer(x)
        return reshape(tracer, (1,) * (dims - tracer.ndim) + tracer.shape)

    return assemble(arrays, levels)


def _bounds(size: int, sections: Any, even: bool) -> list[tuple[int, int]]:
    if isinstance(sections, (int, np.integer)):
        count = int(sections)
        if count <= 0 or (even and size % count):
            raise OperationTypeError(
                point(f"a dimension of {size} does not split into {count} equal parts")
            )
        if count > max(size, MOST):
            raise OperationTypeError(
                point(
                    f"a dimension of {size} in {count} parts; more than {MOST} of them would be "
                    "empty"
                )
            )
        small, extra = divmod(size, count)
        bounds = [0]
        for i in range(count):
            bounds.append(bounds[-1] + small + (i < extra))
    else:
        inside = [range(size)[: int(at)].stop for at in sections]
        bounds = [0, *inside, size]
    return [(a, max(a, b)) for a, b in itertools.pairwise(bounds)]


@public(static=("sections", "axis", "even"))
def _split(ary: Any, sections: Any, axis: int, even: bool) -> list[Tracer]:
    x = as_tracer(ary)
    if not x.ndim:
        raise OperationTypeError(point("a scalar cannot be split"))
    dim = axis_of(axis, x.ndim)
    return [piece(x, dim, a, b) for a, b in _bounds(x.shape[dim], sections, even)]


def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    """Split into equal parts along `axis`, or at the given indices; return a list."""
    return _split(ary, frozen(indices_or_sections), axis, True)


def array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    """Split like `split`; the sizes of parts may differ by one."""
    return _split(ary, frozen(indices_or_sections), axis, False)


def vsplit(ary: Any, indices_or_sections: Any) -> Any:
    """Split along the first dimension."""
    return split(ary, indices_or_sections, 0)


def hsplit(ary: Any, indices_or_sections: Any) -> Any:
    """Split along the second dimension, or the only one."""
    return split(ary, indices_or_sections, 0 if type_of(ary).rank == 1 else 1)


def dsplit(ary: Any, indices_or_sections: Any) -> Any:
    """Split along the third dimension."""
    return split(ary, indices_or_sections, 2)


@public(static=("axis",))
def unstack(x: Any, /, *, axis: int = 0) -> Any:
    """Return the slices along `axis` as a tuple."""
    tracer = as_tracer(x)
    dim = axis_of(axis, tracer.ndim)
    parts = _split(tracer, tracer.shape[dim], dim, True) if tracer.shape[dim] else []
    shape = tracer.shape[:dim] + tracer.shape[dim + 1 :]
    return tuple(reshape(part, shape) for part in parts)
