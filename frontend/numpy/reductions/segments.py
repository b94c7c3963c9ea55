"""Segment reductions: combine the rows of an array that belong to the same segment."""

from collections.abc import Callable

import numpy as np

from shardir.frontend.argument_checks import check_integer
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.arrays.abstract_value import ArrayBase
from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.errors import ArgumentError, TracedValueError
from shardir.frontend.numpy.creation import array_conversion, filling
from shardir.frontend.numpy.elementwise import selection
from shardir.frontend.numpy.indexing.at import UPDATE_MODES
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.quoting import brief
from shardir.frontend.shardings.requested_sharding import ShardingRequest
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.trace import current_trace
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.dtypes import DTYPE_INFO
from shardir.ir.types import FLOATS, INTEGERS


@with_argument_errors
def segment_sum(
    data: ArrayLike,
    segment_ids: ArrayLike,
    num_segments: int | None = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    bucket_size: int | None = None,
    mode: str | None = None,
    out_sharding: ShardingRequest = None,
) -> PyTree:
    """Return the sum of the rows of `data` in each segment: [n, ...] to [segments, ...].

    `segment_ids` has the segment of each row; rows of segments out of range are dropped. There are
    `num_segments` segments, by default one more than the largest id, which is unknown while a
    function is traced. `out_sharding` is the sharding of the result. `indices_are_sorted`,
    `unique_indices` and `bucket_size` have no effect.
    """
    return _reduce_segments(
        "add", lambda kind: 0, data, segment_ids, num_segments, mode, out_sharding
    )


@with_argument_errors
def segment_prod(
    data: ArrayLike,
    segment_ids: ArrayLike,
    num_segments: int | None = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    bucket_size: int | None = None,
    mode: str | None = None,
    out_sharding: ShardingRequest = None,
) -> PyTree:
    """Return the product of the rows of each segment; see `segment_sum`."""
    return _reduce_segments(
        "multiply", lambda kind: 1, data, segment_ids, num_segments, mode, out_sharding
    )


@with_argument_errors
def segment_max(
    data: ArrayLike,
    segment_ids: ArrayLike,
    num_segments: int | None = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    bucket_size: int | None = None,
    mode: str | None = None,
    out_sharding: ShardingRequest = None,
) -> PyTree:
    """Return the maximum of the rows of each segment; see `segment_sum`.

    The result for an empty segment is the smallest value of the element type.
    """
    return _reduce_segments(
        "max",
        lambda kind: _extreme_value(kind, -1),
        data,
        segment_ids,
        num_segments,
        mode,
        out_sharding,
    )


@with_argument_errors
def segment_min(
    data: ArrayLike,
    segment_ids: ArrayLike,
    num_segments: int | None = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    bucket_size: int | None = None,
    mode: str | None = None,
    out_sharding: ShardingRequest = None,
) -> PyTree:
    """Return the minimum of the rows of each segment; see `segment_sum`.

    The result for an empty segment is the largest value of the element type.
    """
    return _reduce_segments(
        "min",
        lambda kind: _extreme_value(kind, 1),
        data,
        segment_ids,
        num_segments,
        mode,
        out_sharding,
    )


def _extreme_value(kind: str, sign: int) -> float | int:
    """Return the largest value of an element type, or the smallest for a negative sign."""
    if kind in FLOATS:
        return sign * np.inf
    if kind == "bool":
        return sign > 0
    info = DTYPE_INFO[kind]
    return info.max_integer if sign > 0 else info.min_integer


def _reduce_segments(
    method: str,
    start: Callable[[str], PyTree],
    data: ArrayLike,
    segment_ids: ArrayLike,
    num_segments: int | None,
    mode: str | None,
    out_sharding: ShardingRequest,
) -> PyTree:
    if mode is not None and not (isinstance(mode, str) and mode in UPDATE_MODES):
        raise ArgumentError(
            with_location(f"mode {brief(mode)} is unknown; the modes are {', '.join(UPDATE_MODES)}")
        )
    rows, ids = array_conversion.asarray(data), array_conversion.asarray(segment_ids)
    kind = rows.abstract.type.dtype
    if method in ("max", "min") and kind not in FLOATS and kind not in INTEGERS and kind != "bool":
        raise ArgumentError(with_location(f"segment_{method} compares real numbers, got {kind}"))
    count = _num_segments(ids, num_segments)
    whole = filling.full((count, *rows.shape[ids.ndim :]), start(kind), rows.dtype)
    # A negative id is no segment, although it is a valid index.
    known = selection.where(ids < 0, count, ids)
    return getattr(whole.at[known], method)(rows, mode=mode or "drop", out_sharding=out_sharding)


def _num_segments(ids: ArrayBase, given: int | None) -> int:
    if given is not None:
        return check_integer("num_segments", given, least=0)
    if current_trace() is not None and isinstance(ids, Tracer):
        raise TracedValueError(
            with_location("the number of segments is not known while tracing; pass num_segments")
        )
    if (kind := ids.abstract.type).dtype not in INTEGERS and kind.dtype != "bool":
        raise ArgumentError(with_location(f"segment_ids are integers, got {kind}"))
    known = np.asarray(ids)
    return int(known.max()) + 1 if known.size else 0
