"""Histograms and counts of integers."""

from collections.abc import Sequence
from math import prod
from typing import TypeAlias

import numpy as np

from shardir.errors import OperationTypeError, count_noun
from shardir.frontend.argument_checks import check_flag, check_integer
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.arrays.numpy_conversion import abstract_of, is_number
from shardir.frontend.arrays.operators import Operators
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import ArgumentError, TracedValueError
from shardir.frontend.numpy.creation import array_conversion, filling, grids
from shardir.frontend.numpy.elementwise import selection
from shardir.frontend.numpy.reductions import basic_reductions
from shardir.frontend.numpy.shaping import concatenation, reshaping
from shardir.frontend.numpy.sorting.searching import searchsorted
from shardir.frontend.numpy.tracer_helpers.array_annotations import ArraySequence
from shardir.frontend.numpy.tracer_helpers.concrete_values import is_concrete, to_concrete_array
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import as_operands, inexact_kind
from shardir.frontend.quoting import brief
from shardir.frontend.shardings.requested_sharding import ShardingRequest
from shardir.frontend.shardings.resharding import call_with_out_sharding
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import as_tracer, convert, promote_inexact, reshape, splat
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.tracing.weak_types import strip_weak_type
from shardir.ir.types import INTEGERS, NumpyArray

MAX_COMPARED_EDGES = 33
"""The maximum number of edges that are compared with every element, instead of a search."""

Range: TypeAlias = "ArraySequence | None"
"""The lowest and the highest value of a histogram; `None` is those of the elements."""

Ranges: TypeAlias = "Sequence[Range] | Operators | NumpyArray | None"
"""The range of each column."""


@with_argument_errors
def bincount(
    x: ArrayLike, weights: ArrayLike | None = None, minlength: int = 0, *,
    length: int | None = None, out_sharding: ShardingRequest = None,
) -> Tracer:  # fmt: skip
    """Return the number of occurrences of each integer from 0 on in the vector `x`.

    With `weights`, return the sums of the weights. The length of the result follows from the
    largest integer and is at least `minlength`; `length` states it exactly, which a traced vector
    requires: integers beyond it are not counted. Negative integers count as 0.
    """
    min_length = check_integer("minlength", minlength)
    if min_length < 0:
        raise ArgumentError(with_location(f"minlength is at least 0, got {min_length}"))
    if length is None:
        if not is_concrete(x):
            raise TracedValueError(
                with_location(
                    "the length of bincount depends on values that are traced; "
                    "state it with length="
                )
            )
        numbers = to_concrete_array(x, "argument x of bincount")
        # `_bincount` refuses other element types.
        # `_bincount` refuses other element types.
        has_integers = numbers.size and numbers.dtype.kind in "iub"
        length = max(int(numbers.max()) + 1 if has_integers else 0, min_length)
    size = check_integer("length of bincount", length, 0)
    return call_with_out_sharding(out_sharding, _bincount, x, weights, size)


@public(static=("length",))
def _bincount(x: ArrayLike, weights: ArrayLike | None, length: int) -> Tracer:

    numbers = as_tracer(x)
    if numbers.value.type.dtype == "bool":
        numbers = convert(numbers, "u8")
    if numbers.ndim != 1 or numbers.value.type.dtype not in INTEGERS:
        raise OperationTypeError(
            with_location(f"bincount takes a vector of integers, got {numbers.value.type}")
        )
    if weights is None and 0 < length < MAX_COMPARED_EDGES:
        clipped = selection.maximum(numbers, 0)
        return concatenation.stack(
            [basic_reductions.count_nonzero(clipped == k) for k in range(length)]
        )
    if weights is None:
        counted: Tracer = filling.ones(numbers.shape, int)
    else:
        counted = as_tracer(weights)
        if counted.shape != numbers.shape:
            raise OperationTypeError(
                with_location(
                    f"bincount takes as many weights as numbers, got {counted.value.type}"
                )
            )
    places = selection.maximum(numbers, 0)
    counts: Tracer = filling.zeros((length,), counted.dtype).at[places].add(counted)
    return counts


@with_argument_errors
def histogram_bin_edges(
    a: ArrayLike, bins: ArrayLike = 10, range: Range = None, weights: ArrayLike | None = None
) -> Tracer:
    """Return the edges of `bins` equal bins from the lowest to the highest element, or over
    `range`.

    A vector of edges is returned as floats.
    """
    if isinstance(bins, str):
        raise ArgumentError(
            with_location(f"bins={bins!r} is unknown; it is a number of bins or a vector of edges")
        )
    if not (is_number(bins) or getattr(bins, "ndim", 1) == 0):
        return _check_edges(bins)
    if range is not None and not _is_pair(range):
        raise ArgumentError(
            with_location(
                f"range of a histogram is {brief(range)}; it is a pair, (lowest, highest)"
            )
        )
    return _equal_edges(a, range, check_integer("the number of bins", bins))


def _is_pair(range: object) -> bool:
    if isinstance(range, (list, tuple)):
        return len(range) == 2
    return getattr(range, "shape", ()) == (2,)


@public(name="histogram_bin_edges")
def _check_edges(bins: ArrayLike) -> Tracer:
    (edges,) = promote_inexact(*as_operands(bins))
    if edges.ndim != 1 or not edges.shape[0]:
        raise OperationTypeError(with_location(f"edges are a vector, got {edges.value.type}"))
    return edges


@public(static=("count",), name="histogram_bin_edges")
def _equal_edges(a: ArrayLike, range: Range, count: int) -> Tracer:

    (x,) = promote_inexact(*as_operands(a))
    if count < 1:
        raise ArgumentError(with_location(f"bins must be at least 1, got {count}"))
    if range is not None:
        low, high = (array_conversion.asarray(range[i], x.dtype) for i in (0, 1))
    elif x.size:
        low, high = basic_reductions.min(x), basic_reductions.max(x)
    else:
        low, high = filling.zeros((), x.dtype), filling.ones((), x.dtype)
    # If there is only one value, the bins surround it.
    alone = low == high
    half = array_conversion.asarray(0.5, x.dtype)
    low, high = selection.where(alone, low - half, low), selection.where(alone, high + half, high)
    edges: Tracer = grids.linspace(low, high, count + 1, dtype=x.dtype)
    return edges


@with_argument_errors
def histogram(
    a: ArrayLike,
    bins: ArrayLike = 10,
    range: Range = None,
    weights: ArrayLike | None = None,
    density: bool | None = None,
) -> tuple[Tracer, Tracer]:
    """Return the number of elements in each bin, as floats, and the edges of the bins.

    `bins` is a number of equal bins (over `range`, or from the lowest to the highest element) or a
    vector of edges. The last bin includes its upper edge. `weights` are summed instead of ones;
    `density` normalizes the integral to 1.
    """
    dense = check_flag("density of histogram", density)
    edges = histogram_bin_edges(a, bins, range)
    counts = _histogram(a, weights, edges, dense)
    return counts, edges


@public(static=("density",))
def _histogram(a: ArrayLike, weights: ArrayLike | None, edges: Tracer, density: bool) -> Tracer:

    x, edges = promote_inexact(*as_operands(a, edges))
    if weights is None and edges.shape[0] <= MAX_COMPARED_EDGES:
        counts = _count_by_comparison(x, edges)
    else:
        if weights is None:
            counted: Tracer = filling.ones(x.shape, x.dtype)
        else:
            counted = promote_inexact(*as_operands(a, weights))[1]
            if counted.shape != x.shape:
                raise OperationTypeError(
                    with_location(
                        f"histogram takes as many weights as elements, got {counted.value.type}"
                    )
                )
        counts = _count_by_scatter([reshape(x, (x.size,))], [edges], reshape(counted, (x.size,)))
    if not density:
        return counts
    widths = edges[1:] - edges[:-1]
    return counts / widths / basic_reductions.sum(counts)


def _count_by_comparison(x: Tracer, edges: Tracer) -> Tracer:
    """Count the elements of few bins: those that reach an edge minus those that reach the next."""

    if edges.shape[0] < 2:
        return splat(0, x.value.type.with_shape((0,)))
    reached = [basic_reductions.count_nonzero(x >= edges[k]) for k in range(edges.shape[0] - 1)]
    beyond = basic_reductions.count_nonzero(x > edges[-1])
    result: Tracer = concatenation.stack(reached) - concatenation.stack([*reached[1:], beyond])
    return convert(result, x.value.type.dtype)


def _count_by_scatter(
    columns: Sequence[Tracer], edges: Sequence[Tracer], weights: Tracer
) -> Tracer:
    """Sum the weights in each bin of a grid; weights outside of the grid are dropped."""

    shape = tuple(e.shape[0] - 1 for e in edges)
    flat: Tracer | int = 0
    inside: Tracer | bool = True
    for x, e, size in zip(columns, edges, shape, strict=True):
        bin_index = selection.clip(searchsorted(e, x, "right") - 1, 0, max(size - 1, 0))
        flat = flat * size + bin_index
        inside = inside & ((x >= e[0]) & (x <= e[-1]))
    total = prod(shape)
    grid = (
        filling.zeros((total,), weights.dtype).at[selection.where(inside, flat, total)].add(weights)
    )
    return reshape(grid, shape)


@with_argument_errors
def histogram2d(
    x: ArrayLike,
    y: ArrayLike,
    bins: ArrayLike = 10,
    range: Ranges = None,
    weights: ArrayLike | None = None,
    density: bool | None = None,
) -> tuple[Tracer, Tracer, Tracer]:
    """Return the number of points (x, y) in each bin of a grid, and the edges along both axes."""

    pair = bins if isinstance(bins, (list, tuple)) and len(bins) == 2 else (bins, bins)
    points = concatenation.stack([reshaping.ravel(x), reshaping.ravel(y)], axis=1)
    counts, edges = histogramdd(points, pair, range, weights, density)
    return counts, edges[0], edges[1]


@with_argument_errors
def histogramdd(
    sample: ArrayLike,
    bins: ArrayLike = 10,
    range: Ranges = None,
    weights: ArrayLike | None = None,
    density: bool | None = None,
) -> tuple[Tracer, list[Tracer]]:
    """Return the number of rows of `sample` in each bin of a grid, and the edges of each column."""

    if isinstance(sample, (list, tuple)):
        sample = concatenation.stack([reshaping.ravel(column) for column in sample], axis=1)
    else:
        abstract_of(sample, "argument sample of histogramdd")
        sample = array_conversion.asarray(sample)
    if len(sample.shape) != 2:
        raise OperationTypeError(
            with_location(f"histogramdd takes rows of coordinates, got shape {tuple(sample.shape)}")
        )
    rank = sample.shape[1]
    each = list(bins) if isinstance(bins, (list, tuple)) else [bins] * rank
    if range is not None and not isinstance(range, (list, tuple)) and not np.asarray(range).ndim:
        raise ArgumentError(
            with_location(
                f"range of histogramdd is {brief(range)}; it is a list of a pair for each column"
            )
        )
    ranges = [None] * rank if range is None else list(range)
    if len(each) != rank or len(ranges) != rank:
        raise ArgumentError(
            with_location(f"histogramdd takes bins and ranges for {count_noun(rank, 'column')}")
        )
    edges = [
        strip_weak_type(histogram_bin_edges(sample[:, i], each[i], ranges[i]))
        for i, _ in enumerate(each)
    ]
    return _count_grid(sample, weights, edges, check_flag("density of histogramdd", density)), edges


@public(static=("density",), name="histogramdd")
def _count_grid(
    sample: ArrayLike, weights: ArrayLike | None, edges: Sequence[Tracer], density: bool
) -> Tracer:

    (rows,) = promote_inexact(*as_operands(sample))
    if weights is None:  # As in JAX, counts are integers.
        counted: Tracer = filling.ones(rows.shape[:1], int)
    else:
        counted = promote_inexact(*as_operands(sample, weights))[1]
    counts = _count_by_scatter([rows[:, i] for i, _ in enumerate(edges)], edges, counted)
    if not density:
        return counts
    counts = convert(counts, inexact_kind(*edges)[0])
    volume: object = 1
    for i, e in enumerate(edges):
        widths = e[1:] - e[:-1]
        shape = tuple(-1 if d == i else 1 for d, _ in enumerate(edges))
        volume = volume * reshaping.reshape(widths, shape)
    return counts / volume / basic_reductions.sum(counts)
