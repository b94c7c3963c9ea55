"""Reductions, cumulative reductions and sorts with the names of `jax.lax`."""

from collections.abc import Callable, Sequence
from functools import partial
from inspect import signature

from shardir.errors import OperationTypeError
from shardir.frontend.argument_checks import check_integer
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.arrays.array_types import ArrayLike, AxisLike
from shardir.frontend.call_signatures import check_call_signature
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import ControlFlowError
from shardir.frontend.lax.control_flow.body_tracing import check_structure
from shardir.frontend.numpy.reductions.basic_reductions import emit_reduction
from shardir.frontend.numpy.shaping.reshaping import moveaxis
from shardir.frontend.numpy.tracer_helpers.axes import canonicalize_axes, canonicalize_axis
from shardir.frontend.numpy.tracer_helpers.axis_slices import (
    concatenate_parts,
    replace_dim_size,
    slice_dim,
)
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import emit_elementwise, is_complex
from shardir.frontend.pytree import tree
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.shardings.requested_sharding import ShardingRequest
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import as_tracer, convert, reshape
from shardir.frontend.tracing.promotion import dtype_of
from shardir.frontend.tracing.trace import emit, emit_results
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.tracing.weak_types import strip_weak_types
from shardir.ir.types import TensorType


def _document_public(name: str, meaning: str, function: UserFunction) -> UserFunction:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = meaning
    # All parameters except the operand are static.
    return public(static=tuple(signature(function).parameters)[1:])(function)


def _define_reduction(name: str, core: str, meaning: str) -> UserFunction:
    def reduce(
        operand: ArrayLike, axes: AxisLike, *, out_sharding: ShardingRequest = None
    ) -> Tracer:
        x = as_tracer(operand)
        return emit_reduction(core, x, canonicalize_axes(axes, x.ndim), False, x.weak_type)

    return _document_public(name, f"Return the {meaning} of the elements along `axes`.", reduce)


reduce_sum, reduce_prod = (
    _define_reduction("reduce_sum", "sum", "sum"),
    _define_reduction("reduce_prod", "prod", "product"),
)
reduce_max, reduce_min = (
    _define_reduction("reduce_max", "max", "maximum"),
    _define_reduction("reduce_min", "min", "minimum"),
)
reduce_and, reduce_or = (
    _define_reduction("reduce_and", "all", "logical and"),
    _define_reduction("reduce_or", "any", "logical or"),
)


def _define_arg_extreme(name: str) -> UserFunction:
    def position(operand: ArrayLike, axis: int, index_dtype: object) -> Tracer:
        x = as_tracer(operand)
        dim = canonicalize_axis(axis, x.ndim)
        shape = x.shape[:dim] + x.shape[dim + 1 :]
        result = TensorType(shape, dtype_of(index_dtype))
        return emit(name, x, dim=dim, result=result, weak=False)

    return _document_public(
        name, f"Return the first index along `axis` of the {name[3:]}imum.", position
    )


argmax, argmin = _define_arg_extreme("argmax"), _define_arg_extreme("argmin")


def _define_cumulative(name: str, meaning: str, extreme: str | None = None) -> UserFunction:
    """Return a cumulative function; `extreme` is the operation that it applies to complex numbers,
    which the operation `name` does not order."""

    def cumulate(operand: ArrayLike, axis: int = 0, reverse: bool = False) -> Tracer:
        x = as_tracer(operand)
        dim = canonicalize_axis(axis, x.ndim)
        if extreme is not None and is_complex(x):
            combine = partial(emit_elementwise, extreme)
            result: Tracer = associative_scan(combine, x, bool(reverse), dim)
            return convert(result, x.value.type.dtype, x.weak_type)
        return emit(name, x, dim=dim, reverse=bool(reverse), weak=x.weak_type)

    return _document_public(
        name, f"Return the cumulative {meaning} along `axis`, from its end if `reverse`.", cumulate
    )


cumsum, cumprod, cummax = (
    _define_cumulative("cumsum", "sum"),
    _define_cumulative("cumprod", "product"),
    _define_cumulative("cummax", "maximum", "maximum"),
)
cummin, cumlogsumexp = (
    _define_cumulative("cummin", "minimum", "minimum"),
    _define_cumulative("cumlogsumexp", "logarithm of the sum of exponentials"),
)


@public(static=("dimension", "is_stable", "num_keys"))
def sort(operand: PyTree, dimension: int = -1, is_stable: bool = True, num_keys: int = 1) -> PyTree:
    """Sort along `dimension`; of several arrays, a tuple, the first `num_keys` are the keys."""
    several = isinstance(operand, (list, tuple))
    arrays = [as_tracer(x) for x in (operand if several else [operand])]
    if not arrays:
        raise OperationTypeError(with_location("sort takes at least one array"))
    dim = canonicalize_axis(dimension, arrays[0].ndim)
    results = emit_results(
        "sort",
        *arrays,
        dim=dim,
        keys=check_integer("num_keys of sort", num_keys),
        stable=bool(is_stable),
    )
    return results if several else results[0]


@with_argument_errors
def sort_key_val(
    keys: ArrayLike, values: ArrayLike, dimension: int = -1, is_stable: bool = True
) -> tuple[Tracer, Tracer]:
    """Sort keys along `dimension`, and return them with the corresponding values."""
    first, second = sort((keys, values), dimension, is_stable)
    return first, second


@public(static=("k", "axis"))
def top_k(operand: ArrayLike, k: int, *, axis: int = -1) -> list[Tracer]:
    """Return the `k` largest elements along `axis` in descending order, and their i32 indices, as a
    list.
    """
    x = as_tracer(operand)
    dim, k = canonicalize_axis(axis, x.ndim), check_integer("k of top_k", k)
    if not 0 <= k <= x.shape[dim]:
        raise OperationTypeError(
            with_location(f"top_k cannot take {k} of dimension {dim} of shape {x.shape}")
        )
    moved = moveaxis(x, dim, -1)
    values = moved.value.type.with_shape((*moved.shape[:-1], k))
    return [
        moveaxis(found, -1, dim)
        for found in emit_results("top_k", moved, result=(values, values.with_dtype("i32")))
    ]


@public(static=("fn", "reverse", "axis"), cached=False)
@strip_weak_types
def associative_scan(
    fn: Callable[[PyTree, PyTree], PyTree], elems: object, reverse: bool = False, axis: int = 0
) -> PyTree:
    """Return the cumulative results of `fn` along `axis`, with logarithmic depth.

    `fn` combines two containers like `elems` elementwise; it must be associative. The first result
    is the first element; with `reverse` the scan starts at the end.
    """
    what = "the function of associative_scan"
    check_call_signature(fn, what, (elems, elems))
    leaves, structure = tree.flatten(elems)
    tracers = [as_tracer(x) for x in leaves]
    if not tracers:
        return elems
    dim = canonicalize_axis(axis, tracers[0].ndim)
    sizes = {x.shape[dim] for x in tracers}
    if len(sizes) > 1:
        shapes = " and ".join(str(x.shape) for x in tracers)
        raise OperationTypeError(
            with_location(
                f"associative_scan takes arrays of one size along axis {axis}, got {shapes}"
            )
        )

    def combine(first: Sequence[Tracer], second: Sequence[Tracer]) -> list[Tracer]:
        found = fn(tree.unflatten(structure, first), tree.unflatten(structure, second))
        results = [as_tracer(x) for x in tree.leaves(found)]
        if len(results) != len(first):
            check_structure(structure, tree.structure(found), what)
        for given, result in zip(first, results, strict=True):
            if given.shape != result.shape:
                raise ControlFlowError(
                    with_location(
                        f"{what} must keep shapes, it returned {result.shape} for two {given.shape}"
                    )
                )
        return results

    if reverse:
        tracers = [_reverse(x, dim) for x in tracers]
    results = _scan_by_halves(combine, tracers, dim)
    if reverse:
        results = [_reverse(x, dim) for x in results]
    return tree.unflatten(structure, results)


def _reverse(x: Tracer, dim: int) -> Tracer:
    result: Tracer = emit("reverse", x, dims=(dim,), weak=x.weak_type)
    return result


MAX_SEQUENTIAL_SCAN_ELEMENTS = 4
"""The number of elements up to which a scan combines one by one: with halves, more data would move
between devices that share the axis, and one more combination is necessary."""


def _scan_by_halves(
    combine: Callable[[Sequence[Tracer], Sequence[Tracer]], list[Tracer]],
    xs: list[Tracer],
    dim: int,
) -> list[Tracer]:
    """Scan by halves: combine adjacent pairs, scan the pairs, and combine the elements in between.

    Each step reads every other element, which stays on its device if the dimension is sharded, and
    all steps need fewer than two combinations per element.
    """
    size = xs[0].shape[dim]
    if size < 2:
        return xs
    if size <= MAX_SEQUENTIAL_SCAN_ELEMENTS:
        return _scan_sequentially(combine, xs, dim)
    pairs = combine(
        [_stride_two_slice(x, dim, 0, size // 2) for x in xs],
        [_stride_two_slice(x, dim, 1, size // 2) for x in xs],
    )
    ends = _scan_by_halves(combine, pairs, dim)
    starts = [slice_dim(x, dim, 0, 1) for x in xs]
    inner = (size - 1) // 2
    if inner:
        between = combine(
            [slice_dim(end, dim, 0, inner) for end in ends],
            [_stride_two_slice(x, dim, 2, inner) for x in xs],
        )
        starts = [
            concatenate_parts((start, rest), dim)
            for start, rest in zip(starts, between, strict=True)
        ]
    return [_interleave(a, b, dim) for a, b in zip(starts, ends, strict=True)]


def _scan_sequentially(
    combine: Callable[[Sequence[Tracer], Sequence[Tracer]], list[Tracer]],
    xs: list[Tracer],
    dim: int,
) -> list[Tracer]:
    """Combine each element with the result before it."""
    rows = [[slice_dim(x, dim, i, i + 1) for x in xs] for i in range(xs[0].shape[dim])]
    results = rows[:1]
    for row in rows[1:]:
        results.append(combine(results[-1], row))
    return [concatenate_parts(column, dim) for column in zip(*results, strict=True)]


def _stride_two_slice(x: Tracer, dim: int, start: int, count: int) -> Tracer:
    """Return `count` elements along `dim` from `start` on, with stride 2."""
    result: Tracer = emit(
        "slice",
        x,
        starts=replace_dim_size((0,) * x.ndim, dim, start),
        strides=replace_dim_size((1,) * x.ndim, dim, 2),
        result=x.value.type.with_shape(replace_dim_size(x.shape, dim, count)),
        weak=x.weak_type,
    )
    return result


def _interleave(first: Tracer, second: Tracer, dim: int) -> Tracer:
    """Interleave the elements of both; the first may have one more."""
    size = second.shape[dim]
    row = (*second.shape[: dim + 1], 1, *second.shape[dim + 1 :])
    rows = [reshape(x, row) for x in (slice_dim(first, dim, 0, size), second)]
    both = reshape(concatenate_parts(rows, dim + 1), replace_dim_size(second.shape, dim, 2 * size))
    return concatenate_parts((both, slice_dim(first, dim, size, first.shape[dim])), dim)
