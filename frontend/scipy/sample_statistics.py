"""Statistics of samples: modes, ranks and the standard error of the mean.

Modes and ranks follow from the runs of equal elements in sorted order. NaN is equal to NaN and
larger than every number.
"""

from math import sqrt
from typing import NamedTuple

from shardir.frontend.argument_checks import is_one_of
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import ArgumentError
from shardir.frontend.numpy import dtypes
from shardir.frontend.numpy.creation import filling
from shardir.frontend.numpy.elementwise import float_parts, math_functions, selection
from shardir.frontend.numpy.indexing.take import take_along_axis
from shardir.frontend.numpy.reductions import basic_reductions, nan_reductions, statistics
from shardir.frontend.numpy.tracer_helpers.axes import canonicalize_axis
from shardir.frontend.numpy.tracer_helpers.axis_slices import concatenate_parts, slice_dim
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import promote_args_inexact
from shardir.frontend.quoting import brief
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing import promotion
from shardir.frontend.tracing.operands import as_indices, as_tracer, convert, reshape
from shardir.frontend.tracing.trace import emit, emit_results
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.types import INEXACT, TensorType

RANK_METHODS = ("average", "min", "max", "dense", "ordinal")


class ModeResult(NamedTuple):
    """The most frequent elements, and how often they occur."""

    mode: Tracer
    count: Tracer  # type: ignore[assignment]


class _Runs(NamedTuple):
    """The runs of equal elements along a dimension in sorted order."""

    values: Tracer
    order: Tracer
    positions: Tracer
    is_first: Tracer
    starts: Tracer
    ends: Tracer


@with_argument_errors
def mode(
    a: ArrayLike, axis: int | None = 0, nan_policy: str = "propagate", keepdims: bool = False
) -> ModeResult:
    """Return the most frequent element along `axis` and its count; the smallest of several.

    `axis=None` flattens the array. NaN counts as one more value.
    """
    _check_nan_policy("mode", nan_policy, ("propagate",))
    return ModeResult(*_mode(a, axis, keepdims))


@public(static=("axis", "keepdims"), name="mode")
def _mode(a: ArrayLike, axis: int | None, keepdims: bool) -> tuple[Tracer, Tracer]:
    x, dim, kept = _flatten_or_keep_dims(a, axis)
    if not x.shape[dim]:
        shape = kept if keepdims else _without_dim(x.shape, dim)
        return filling.full(shape, dtypes.nan), filling.zeros(shape)
    runs = _find_runs(x, dim)
    counts = runs.ends - runs.starts + 1
    best = basic_reductions.argmax(counts, axis=dim, keepdims=True)
    value, count = (take_along_axis(each, best, axis=dim) for each in (runs.values, counts))
    shape = kept if keepdims else _without_dim(x.shape, dim)
    return reshape(value, shape), as_indices(reshape(count, shape))


@with_argument_errors
def rankdata(
    a: ArrayLike, method: str = "average", *, axis: int | None = None, nan_policy: str = "propagate"
) -> Tracer:
    """Return the ranks of the elements along `axis`, from 1; the flattened array without `axis`.

    Equal elements have the average, the smallest ("min") or the largest ("max") of their ranks,
    ranks without gaps ("dense"), or ranks in the order of the array ("ordinal"). All ranks are NaN
    where an element is NaN.
    """
    _check_nan_policy("rankdata", nan_policy, ("propagate",))
    if not is_one_of(method, RANK_METHODS):
        raise ArgumentError(
            with_location(
                f"rankdata has no method {brief(method)}; the methods are {', '.join(RANK_METHODS)}"
            )
        )
    return _ranks(a, method, axis)


@public(static=("method", "axis"), name="rankdata")
def _ranks(a: ArrayLike, method: str, axis: int | None) -> Tracer:
    x, dim, _ = _flatten_or_keep_dims(a, axis)
    ranks = _emit_ranks(x, method, dim) if x.size else x
    ranks = convert(ranks, promotion.canonical_dtype("f64"))
    if x.value.type.dtype not in INEXACT:
        return ranks
    is_nan = basic_reductions.any(float_parts.isnan(x), axis=dim, keepdims=True)
    return selection.where(is_nan, dtypes.nan, ranks)


def _emit_ranks(x: Tracer, method: str, dim: int) -> Tracer:
    runs = _find_runs(x, dim)
    match method:
        case "ordinal":
            in_order = runs.positions + 1
        case "dense":
            in_order = emit("cumsum", convert(runs.is_first, "i32"), dim=dim, reverse=False)
        case "min":
            in_order = runs.starts + 1
        case "max":
            in_order = runs.ends + 1
        case _:
            in_order = convert(runs.starts + runs.ends + 2, promotion.canonical_dtype("f64")) * 0.5
    # Sorting the ranks by the positions of their elements undoes the first sort.
    return emit_results("sort", runs.order, in_order, dim=dim, keys=1, stable=True)[1]


@public(static=("axis", "ddof", "nan_policy", "keepdims"))
def sem(
    a: ArrayLike,
    axis: int | None = 0,
    ddof: int = 1,
    nan_policy: str = "propagate",
    *,
    keepdims: bool = False,
) -> Tracer:
    """Return the standard error of the mean along `axis`: the deviation over sqrt(size).

    With the policy "omit", NaN does not count.
    """
    _check_nan_policy("sem", nan_policy, ("propagate", "omit"))
    (x,) = promote_args_inexact(a)
    if nan_policy == "propagate":
        size = x.size if axis is None else x.shape[canonicalize_axis(axis, x.ndim)]
        return statistics.std(x, axis, ddof=ddof, keepdims=keepdims) / sqrt(size)
    count = basic_reductions.sum(~float_parts.isnan(x), axis=axis, keepdims=keepdims)
    deviation = nan_reductions.nanstd(x, axis, ddof=ddof, keepdims=keepdims)
    return deviation / convert(math_functions.sqrt(count), deviation.value.type.dtype)


def _check_nan_policy(name: str, policy: str, policies: tuple[str, ...]) -> None:
    if not is_one_of(policy, policies):
        choice = " or ".join(map(repr, policies))
        raise ArgumentError(
            with_location(
                f"{name} has no nan_policy {brief(policy)}: it is {choice}; remove or replace "
                f"elements that are NaN before the call"
            )
        )


def _flatten_or_keep_dims(a: ArrayLike, axis: int | None) -> tuple[Tracer, int, tuple[int, ...]]:
    """Return the operand, the dimension to reduce, and the shape with that dimension kept."""
    x = as_tracer(a)
    if axis is None:
        return reshape(x, (x.size,)), 0, (1,) * x.ndim
    if not x.ndim:
        x = reshape(x, (1,))
    dim = canonicalize_axis(axis, x.ndim)
    return x, dim, tuple(1 if d == dim else size for d, size in enumerate(x.shape))


def _without_dim(shape: tuple[int, ...], dim: int) -> tuple[int, ...]:
    return shape[:dim] + shape[dim + 1 :]


def _find_runs(x: Tracer, dim: int) -> _Runs:
    """Sort along a dimension and find the first and the last position of each run."""
    index = TensorType(x.shape, "i32")
    positions = emit("iota", dim=dim, result=index)
    values, order = emit_results("sort", x, positions, dim=dim, keys=1, stable=True)
    size = x.shape[dim]
    current, before = slice_dim(values, dim, 1, size), slice_dim(values, dim, 0, size - 1)
    differs = current != before
    if x.value.type.dtype in INEXACT:
        differs = differs & ~float_parts.isnan(before)
    edge = filling.ones(tuple(1 if d == dim else n for d, n in enumerate(x.shape)), bool)
    is_first = concatenate_parts([edge, differs], dim)
    is_last = concatenate_parts([differs, edge], dim)
    first_positions = selection.where(is_first, positions, 0)
    last_positions = selection.where(is_last, positions, size - 1)
    starts = emit("cummax", first_positions, dim=dim, reverse=False)
    ends = emit("cummin", last_positions, dim=dim, reverse=True)
    return _Runs(values, order, positions, is_first, starts, ends)
