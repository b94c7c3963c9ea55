"""Random permutations and choices of the elements of an array."""

from math import ceil, log

import numpy as np

from shardir.errors import count_noun
from shardir.frontend.argument_checks import as_integer, canonicalize_shape
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.arrays.array_types import ArrayLike, ShapeLike
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import RandomError, TracedIntegerError
from shardir.frontend.numpy.elementwise import math_functions
from shardir.frontend.numpy.indexing import take
from shardir.frontend.numpy.reductions import cumulative
from shardir.frontend.numpy.shaping import reshaping
from shardir.frontend.numpy.sorting import searching
from shardir.frontend.numpy.tracer_helpers.axes import canonicalize_axis
from shardir.frontend.random.continuous_distributions import check_mode, sample_gumbel
from shardir.frontend.random.keys import require_single_key, split
from shardir.frontend.random.uniform_numbers import draw_bits, draw_unit, randint
from shardir.frontend.shardings.requested_sharding import ShardingRequest
from shardir.frontend.shardings.resharding import apply_out_sharding, call_with_out_sharding
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import as_tracer, convert
from shardir.frontend.tracing.promotion import dtype_of
from shardir.frontend.tracing.trace import emit, emit_results
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.types import FLOATS, TensorType


@with_argument_errors
def permutation(
    key: ArrayLike,
    x: ArrayLike,
    axis: int = 0,
    independent: bool = False,
    *,
    out_sharding: ShardingRequest = None,
) -> Tracer:
    """Permute `x` randomly along `axis`; an integer n denotes the array 0, ..., n - 1.

    `independent` permutes every 1-D slice along the axis independently.
    """
    count = _concrete_count(x)
    if count is not None:
        return apply_out_sharding(_permute_range(key, count), out_sharding)
    return call_with_out_sharding(out_sharding, _permute_array, key, x, axis, independent)


def _concrete_count(x: ArrayLike) -> int | None:
    """Return the integer that denotes an array 0, ..., n - 1, or `None` if `x` is no integer whose
    value is known.
    """
    if type(x) is int:
        return x
    if getattr(x, "shape", None) != () or getattr(x, "dtype", np.dtype(bool)).kind not in "iu":
        return None
    try:
        return as_integer(x)
    except TracedIntegerError:
        return None


def _index_range(count: int) -> Tracer:
    result: Tracer = emit("iota", dim=0, result=TensorType((count,), dtype_of(int)))
    return result


@public(static=("count",), name="permutation")
def _permute_range(key: ArrayLike, count: int) -> Tracer:
    return shuffle_by_sorting(require_single_key(key), _index_range(count), 0)


@public(static=("axis", "independent"), name="permutation")
def _permute_array(key: ArrayLike, x: ArrayLike, axis: int, independent: bool) -> Tracer:
    array = as_tracer(x)
    if not array.ndim:
        raise RandomError(with_location("permutation takes an array, or a concrete integer"))
    dim = canonicalize_axis(axis, array.ndim)
    if array.ndim == 1 or independent:
        return shuffle_by_sorting(require_single_key(key), array, dim)
    order = shuffle_by_sorting(require_single_key(key), _index_range(array.shape[dim]), 0)
    return take.take(array, order, axis=dim, mode="promise_in_bounds")


def shuffle_by_sorting(key: Tracer, array: Tracer, dim: int) -> Tracer:
    """Sort by random words, in so many rounds that equal words are negligible (JAX's rule)."""
    rounds = ceil(3 * log(max(1, array.size)) / log((1 << 32) - 1))
    for _ in range(rounds):
        keys = split(key, 2)
        key = keys[0]
        words = draw_bits(keys[1], array.shape, 32)
        _, array = emit_results("sort", words, array, dim=dim, keys=1, stable=True)
    return array


@with_argument_errors
def choice(
    key: ArrayLike,
    a: ArrayLike,
    shape: ShapeLike = (),
    replace: bool = True,
    p: ArrayLike | None = None,
    axis: int = 0,
    mode: str | None = None,
) -> Tracer:
    """Return random elements of `a` along `axis`; an integer n denotes the array 0, ..., n - 1.

    `p` are the probabilities of the elements, by default equal; without `replace` no element occurs
    twice. With `mode="high"`, choices with `p` and without `replace` use twice the number of bits.
    """
    is_high = check_mode("choice", mode)
    count = _concrete_count(a)
    if count is not None:
        return _choose_from_range(key, p, count, canonicalize_shape(shape), replace, is_high)
    return _choose_from_array(key, a, p, canonicalize_shape(shape), replace, axis, is_high)


@public(static=("count", "shape", "replace", "is_high"), name="choice")
def _choose_from_range(
    key: ArrayLike,
    p: ArrayLike | None,
    count: int,
    shape: tuple[int, ...],
    replace: bool,
    is_high: bool,
) -> Tracer:
    return _choose_indices(require_single_key(key), p, count, shape, replace, is_high)


@public(static=("shape", "replace", "axis", "is_high"), name="choice")
def _choose_from_array(
    key: ArrayLike,
    a: ArrayLike,
    p: ArrayLike | None,
    shape: tuple[int, ...],
    replace: bool,
    axis: int,
    is_high: bool,
) -> Tracer:
    array = as_tracer(a)
    if not array.ndim:
        raise RandomError(with_location("choice takes an array, or a concrete integer"))
    dim = canonicalize_axis(axis, array.ndim)
    single, size = require_single_key(key), array.shape[dim]
    positions = _choose_indices(single, p, size, shape, replace, is_high)
    return take.take(array, positions, axis=dim, mode="promise_in_bounds")


def _choose_indices(
    key: Tracer,
    p: ArrayLike | None,
    size: int,
    shape: tuple[int, ...],
    replace: bool,
    is_high: bool,
) -> Tracer:
    """Return the indices of the chosen elements."""
    count = int(np.prod(shape, dtype=np.int64))
    if not size and count:
        raise RandomError(
            with_location(
                f"choice cannot choose {count} of 0 elements; pass an array with elements, or a "
                "positive number"
            )
        )
    if not replace and count > size:
        raise RandomError(
            with_location(
                f"choice cannot choose {count} of {count_noun(size, 'element')} without "
                "replacement; choose fewer, or pass replace=True"
            )
        )
    found: Tracer
    if p is None and replace:
        found = randint(key, shape, 0, size)
    elif p is None:
        found = reshaping.reshape(shuffle_by_sorting(key, _index_range(size), 0)[:count], shape)
    else:
        found = reshaping.reshape(
            _choose_weighted(key, as_tracer(p), size, count, shape, replace, is_high), shape
        )
    return convert(found, dtype_of(int))


def _choose_weighted(
    key: Tracer,
    p: Tracer,
    size: int,
    count: int,
    shape: tuple[int, ...],
    replace: bool,
    is_high: bool,
) -> Tracer:
    if p.shape != (size,):
        raise RandomError(
            with_location(
                f"choice takes a probability for each of {count_noun(size, 'element')}, "
                f"got {p.shape}"
            )
        )
    if p.value.type.dtype not in FLOATS:
        p = convert(p, dtype_of(float))
    name = p.value.type.dtype
    if replace:
        sums = cumulative.cumsum(p)
        drawn = sums[-1] * (1 - draw_unit(key, shape, name))
        result: Tracer = searching.searchsorted(sums, drawn)
        return result
    noisy = sample_gumbel(key, (size,), name, is_high) + math_functions.log(p)
    values = noisy.value.type.with_shape((count,))
    _, indices = emit_results("top_k", noisy, result=(values, values.with_dtype("i32")))
    top: Tracer = indices
    return top
