"""Several arrays as one, and one as several."""

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
"""So many parts may be more than there are elements; each is an operation of a program."""


def _promoted(arrays: Any, what: str, dtype: Any = None) -> list[Tracer]:
    if isinstance(arrays, Tracer) or hasattr(arrays, "shape"):
        whole = as_tracer(arrays)
        if not whole.ndim:
            raise OperationTypeError(point(f"{what} takes several arrays, got a scalar"))
        arrays = [whole[i] for i in range(whole.shape[0])]
    if not len(arrays):
        raise OperationTypeError(point(f"{what} takes at least one array"))
    arrays = known(*arrays)
    tracers = list(promote_to(common(*arrays), *arrays))
    return [convert(x, dtype_of(dtype)) for x in tracers] if dtype is not None else tracers


@public(static=("axis", "dtype"))
def concatenate(arrays: Any, axis: int | None = 0, dtype: Any = None) -> Any:
    """Arrays one after the other along `axis`; without an axis, all of them flat."""
    parts = _promoted(arrays, "concatenate", dtype)
    if axis is None:
        parts, axis = [reshape(x, (x.size,)) for x in parts], 0
    if not parts[0].ndim:
        raise OperationTypeError(point("scalars cannot be concatenated; use stack"))
    dim = axis_of(axis, parts[0].ndim)
    wanted = parts[0].shape
    for x in parts[1:]:
        same = x.ndim == len(wanted) and all(
            n == m for d, (n, m) in enumerate(zip(x.shape, wanted, strict=True)) if d != dim
        )
        if not same:
            raise OperationTypeError(
                point(
                    f"arrays of shapes {wanted} and {x.shape} cannot be concatenated along axis "
                    f"{dim}; all other dimensions must agree"
                )
            )
    return joined(parts, dim)


concat = concatenate


@public(static=("axis", "dtype"))
def stack(arrays: Any, axis: int = 0, dtype: Any = None) -> Any:
    """Arrays of one shape along a new dimension."""
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
    """Along the first dimension; vectors are rows."""
    parts = [reshape(x, (1,) * (2 - x.ndim) + x.shape) for x in _promoted(tup, "vstack", dtype)]
    return concatenate(parts, 0)


@public(static=("dtype",))
def hstack(tup: Any, dtype: Any = None) -> Any:
    """Along the second dimension; vectors along their only one."""
    parts = [reshape(x, x.shape or (1,)) for x in _promoted(tup, "hstack", dtype)]
    return concatenate(parts, 0 if parts[0].ndim == 1 else 1)


@public(static=("dtype",))
def dstack(tup: Any, dtype: Any = None) -> Any:
    """Along the third dimension."""
    from shardir.frontend.numpy.manipulation import atleast_3d

    return concatenate([atleast_3d(x) for x in _promoted(tup, "dstack", dtype)], 2)


@public()
def column_stack(tup: Any) -> Any:
    """Along the second dimension; vectors are columns."""
    parts = [reshape(x, (x.size, 1)) if x.ndim < 2 else x for x in _promoted(tup, "column_stack")]
    return concatenate(parts, 1)


@public(static=("axis",))
def append(arr: Any, values: Any, axis: int | None = None) -> Any:
    """`values` behind `arr` along `axis`; without it both are flat."""
    return concatenate([arr, values], axis)


@public()
def block(arrays: Any) -> Any:
    """Nested lists of blocks, the innermost joined along the last dimension."""

    def depth(x: Any) -> int:
        return 1 + max(map(depth, x)) if isinstance(x, (list, tuple)) else 0

    def rank(x: Any) -> int:
        return max(map(rank, x)) if isinstance(x, (list, tuple)) else as_tracer(x).ndim

    levels = depth(arrays)
    dims = max(levels, rank(arrays))

    def whole(x: Any, level: int) -> Any:
        if isinstance(x, (list, tuple)):
            return concatenate([whole(part, level - 1) for part in x], dims - level)
        tracer = as_tracer(x)
        return reshape(tracer, (1,) * (dims - tracer.ndim) + tracer.shape)

    return whole(arrays, levels)


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
        cuts = [0]
        for i in range(count):
            cuts.append(cuts[-1] + small + (i < extra))
    else:
        inside = [range(size)[: int(at)].stop for at in sections]
        cuts = [0, *inside, size]
    return [(a, max(a, b)) for a, b in itertools.pairwise(cuts)]


@public(static=("sections", "axis", "even"))
def _split(ary: Any, sections: Any, axis: int, even: bool) -> list[Tracer]:
    x = as_tracer(ary)
    if not x.ndim:
        raise OperationTypeError(point("a scalar cannot be split"))
    dim = axis_of(axis, x.ndim)
    return [piece(x, dim, a, b) for a, b in _bounds(x.shape[dim], sections, even)]


def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    """Equal parts along `axis`, or parts between the given indices, as a list."""
    return _split(ary, frozen(indices_or_sections), axis, True)


def array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    """Like `split`; parts may differ by one element."""
    return _split(ary, frozen(indices_or_sections), axis, False)


def vsplit(ary: Any, indices_or_sections: Any) -> Any:
    """`split` along the first dimension."""
    return split(ary, indices_or_sections, 0)


def hsplit(ary: Any, indices_or_sections: Any) -> Any:
    """`split` along the second dimension, or the only one."""
    return split(ary, indices_or_sections, 0 if type_of(ary).rank == 1 else 1)


def dsplit(ary: Any, indices_or_sections: Any) -> Any:
    """`split` along the third dimension."""
    return split(ary, indices_or_sections, 2)


@public(static=("axis",))
def unstack(x: Any, /, *, axis: int = 0) -> Any:
    """The slices along `axis`, as a tuple."""
    tracer = as_tracer(x)
    dim = axis_of(axis, tracer.ndim)
    parts = _split(tracer, tracer.shape[dim], dim, True) if tracer.shape[dim] else []
    shape = tracer.shape[:dim] + tracer.shape[dim + 1 :]
    return tuple(reshape(part, shape) for part in parts)
