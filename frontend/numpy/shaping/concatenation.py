"""Concatenation of arrays, and splits of an array into parts."""

import itertools
from collections.abc import Sequence
from typing import SupportsIndex, TypeAlias

import numpy as np

from shardir.errors import OperationTypeError
from shardir.frontend.argument_checks import check_integers
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.arrays.abstract_value import ArrayBase
from shardir.frontend.arrays.array_types import ArrayLike, DTypeLike
from shardir.frontend.dispatch.eager import public
from shardir.frontend.numpy.shaping.reshaping import atleast_3d
from shardir.frontend.numpy.tracer_helpers.array_annotations import ArraySequence
from shardir.frontend.numpy.tracer_helpers.axes import canonicalize_axis
from shardir.frontend.numpy.tracer_helpers.axis_slices import concatenate_parts, slice_dim
from shardir.frontend.numpy.tracer_helpers.concrete_values import to_hashable
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import (
    as_operands,
    check_no_out,
    common_kind,
)
from shardir.frontend.numpy.tracer_helpers.inspection import tensor_type_of
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import as_tracer, convert, promote_to, reshape
from shardir.frontend.tracing.promotion import dtype_of
from shardir.frontend.tracing.tracer import Tracer

MAX_EMPTY_PARTS = 1 << 16
"""The maximum number of parts if there are fewer elements; each part is an operation."""

Sections: TypeAlias = int | np.integer | Sequence[SupportsIndex]
"""The number of equal parts of a dimension, or the indices at which it is split."""


def _promote_arrays(
    arrays: ArraySequence, what: str, dtype: DTypeLike | None = None
) -> list[Tracer]:
    if isinstance(arrays, ArrayBase) or hasattr(arrays, "shape"):
        array = as_tracer(arrays)
        if not array.ndim:
            raise OperationTypeError(with_location(f"{what} takes several arrays, got a scalar"))
        arrays = [array[i] for i in range(array.shape[0])]
    if not len(arrays):
        raise OperationTypeError(with_location(f"{what} takes at least one array"))
    arrays = as_operands(*arrays)
    tracers = list(promote_to(common_kind(*arrays), *arrays))
    return [convert(x, dtype_of(dtype)) for x in tracers] if dtype is not None else tracers


@public(static=("axis", "dtype"))
def concatenate(
    arrays: ArraySequence, axis: int | None = 0, dtype: DTypeLike | None = None
) -> Tracer:
    """Concatenate arrays along `axis`; without an axis, concatenate the flattened arrays.

    All other dimensions must agree. The result has the promoted element type, or `dtype`.
    """
    parts = _promote_arrays(arrays, "concatenate", dtype)
    if axis is None:
        parts, axis = [reshape(x, (x.size,)) for x in parts], 0
    if not parts[0].ndim:
        raise OperationTypeError(with_location("scalars cannot be concatenated; use stack"))
    dim = canonicalize_axis(axis, parts[0].ndim)
    first_shape = parts[0].shape
    for x in parts[1:]:
        same = x.ndim == len(first_shape) and all(
            n == m for d, (n, m) in enumerate(zip(x.shape, first_shape, strict=True)) if d != dim
        )
        if not same:
            raise OperationTypeError(
                with_location(
                    f"arrays of shapes {first_shape} and {x.shape} cannot be concatenated along "
                    f"axis {dim}; all other dimensions must agree"
                )
            )
    return concatenate_parts(parts, dim)


concat = concatenate


@public(static=("axis", "out", "dtype"))
def stack(
    arrays: ArraySequence, axis: int = 0, out: None = None, dtype: DTypeLike | None = None
) -> Tracer:
    """Stack arrays of one shape along a new dimension."""
    check_no_out("stack", out)
    parts = _promote_arrays(arrays, "stack", dtype)
    shape = parts[0].shape
    for x in parts:
        if x.shape != shape:
            raise OperationTypeError(
                with_location(f"stack takes arrays of one shape, got {shape} and {x.shape}")
            )
    dim = canonicalize_axis(axis, len(shape) + 1)
    grown = (*shape[:dim], 1, *shape[dim:])
    return concatenate([reshape(x, grown) for x in parts], dim)


@public(static=("dtype",))
def vstack(tup: ArraySequence, dtype: DTypeLike | None = None) -> Tracer:
    """Concatenate along the first dimension; vectors become rows."""
    parts = [
        reshape(x, (1,) * (2 - x.ndim) + x.shape) for x in _promote_arrays(tup, "vstack", dtype)
    ]
    return concatenate(parts, 0)


@public(static=("dtype",))
def hstack(tup: ArraySequence, dtype: DTypeLike | None = None) -> Tracer:
    """Concatenate along the second dimension; vectors along their only one."""
    parts = [reshape(x, x.shape or (1,)) for x in _promote_arrays(tup, "hstack", dtype)]
    return concatenate(parts, 0 if parts[0].ndim == 1 else 1)


@public(static=("dtype",))
def dstack(tup: ArraySequence, dtype: DTypeLike | None = None) -> Tracer:
    """Concatenate along the third dimension."""
    return concatenate([atleast_3d(x) for x in _promote_arrays(tup, "dstack", dtype)], 2)


@public()
def column_stack(tup: ArraySequence) -> Tracer:
    """Concatenate along the second dimension; vectors become columns."""
    parts = [
        reshape(x, (x.size, 1)) if x.ndim < 2 else x for x in _promote_arrays(tup, "column_stack")
    ]
    return concatenate(parts, 1)


@public(static=("axis",))
def append(arr: ArrayLike, values: ArrayLike, axis: int | None = None) -> Tracer:
    """Append `values` to `arr` along `axis`; without it, both are flattened."""
    return concatenate([arr, values], axis)


@public()
def block(arrays: ArrayLike) -> Tracer:
    """Concatenate nested lists of blocks, the innermost lists along the last dimension."""

    def depth(x: ArrayLike) -> int:
        if isinstance(x, (list, tuple)) and not x:
            raise OperationTypeError(with_location("block takes lists of at least one block"))
        return 1 + max(map(depth, x)) if isinstance(x, (list, tuple)) else 0

    def rank(x: ArrayLike) -> int:
        return max(map(rank, x)) if isinstance(x, (list, tuple)) else as_tracer(x).ndim

    levels = depth(arrays)
    dims = max(levels, rank(arrays))

    def assemble(x: ArrayLike, level: int) -> Tracer:
        if isinstance(x, (list, tuple)):
            return concatenate([assemble(part, level - 1) for part in x], dims - level)
        tracer = as_tracer(x)
        return reshape(tracer, (1,) * (dims - tracer.ndim) + tracer.shape)

    return assemble(arrays, levels)


def _part_bounds(size: int, sections: Sections, even: bool) -> list[tuple[int, int]]:
    if isinstance(sections, (int, np.integer)):
        count = int(sections)
        if count <= 0 or (even and size % count):
            raise OperationTypeError(
                with_location(
                    f"a dimension of size {size} cannot be split into {count} equal parts"
                )
            )
        if count > max(size, MAX_EMPTY_PARTS):
            raise OperationTypeError(
                with_location(
                    f"a split of a dimension of size {size} into {count} parts would have more "
                    f"than {MAX_EMPTY_PARTS} empty parts; use fewer parts"
                )
            )
        small, extra = divmod(size, count)
        bounds = [0]
        for i in range(count):
            bounds.append(bounds[-1] + small + (i < extra))
    else:
        places = check_integers("indices_or_sections of a split", sections)
        inside = [range(size)[:at].stop for at in places]
        bounds = [0, *inside, size]
    return [(a, max(a, b)) for a, b in itertools.pairwise(bounds)]


@public(static=("sections", "axis", "even"))
def _split(ary: ArrayLike, sections: Sections, axis: int, even: bool) -> list[Tracer]:
    x = as_tracer(ary)
    if not x.ndim:
        raise OperationTypeError(with_location("a scalar cannot be split"))
    dim = canonicalize_axis(axis, x.ndim)
    return [slice_dim(x, dim, a, b) for a, b in _part_bounds(x.shape[dim], sections, even)]


@with_argument_errors
def split(ary: ArrayLike, indices_or_sections: ArrayLike, axis: int = 0) -> list[Tracer]:
    """Split into equal parts along `axis`, or at the given indices; return a list."""
    return _split(ary, to_hashable(indices_or_sections), axis, True)


@with_argument_errors
def array_split(ary: ArrayLike, indices_or_sections: ArrayLike, axis: int = 0) -> list[Tracer]:
    """Split like `split`; the sizes of parts may differ by one."""
    return _split(ary, to_hashable(indices_or_sections), axis, False)


@with_argument_errors
def vsplit(ary: ArrayLike, indices_or_sections: ArrayLike) -> list[Tracer]:
    """Split along the first dimension."""
    return split(ary, indices_or_sections, 0)


@with_argument_errors
def hsplit(ary: ArrayLike, indices_or_sections: ArrayLike) -> list[Tracer]:
    """Split along the second dimension, or the only one."""
    return split(ary, indices_or_sections, 0 if tensor_type_of(ary).rank == 1 else 1)


@with_argument_errors
def dsplit(ary: ArrayLike, indices_or_sections: ArrayLike) -> list[Tracer]:
    """Split along the third dimension."""
    return split(ary, indices_or_sections, 2)


@public(static=("axis",))
def unstack(x: ArrayLike, /, *, axis: int = 0) -> tuple[Tracer, ...]:
    """Return the slices along `axis` as a tuple."""
    tracer = as_tracer(x)
    dim = canonicalize_axis(axis, tracer.ndim)
    parts = _split(tracer, tracer.shape[dim], dim, True) if tracer.shape[dim] else []
    shape = tracer.shape[:dim] + tracer.shape[dim + 1 :]
    return tuple(reshape(part, shape) for part in parts)
