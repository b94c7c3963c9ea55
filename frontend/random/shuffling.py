"""Random permutations and choices of the elements of an array."""

from math import ceil, log
from typing import Any

import numpy as np

from shardir.frontend import numpy as snp
from shardir.frontend.eager import public
from shardir.frontend.errors import RandomError
from shardir.frontend.locations import point
from shardir.frontend.numpy.axes import axis_of, shape_of
from shardir.frontend.operands import as_tracer, convert, is_number
from shardir.frontend.promotion import dtype_of
from shardir.frontend.random.distributions import gumbels
from shardir.frontend.random.keys import single_key, split
from shardir.frontend.random.uniformly import draw, randint, unit
from shardir.frontend.resharding import laid_out
from shardir.frontend.trace import emit
from shardir.frontend.tracer import Tracer
from shardir.types import FLOATS, TensorType


def permutation(
    key: Any, x: Any, axis: int = 0, independent: bool = False, *, out_sharding: Any = None
) -> Any:
    """Permute `x` randomly along `axis`; an integer n denotes the array 0, ..., n - 1.

    `independent` permutes every 1-D slice along the axis independently.
    """
    if _is_count(x):
        return laid_out(_permuted_numbers(key, int(x)), out_sharding)
    return laid_out(_permuted(key, x, axis, independent), out_sharding)


def _is_count(x: Any) -> bool:
    return (is_number(x) and type(x) is int) or isinstance(x, np.integer)


def _numbers(count: int) -> Tracer:
    result: Tracer = emit("iota", dim=0, result=TensorType((count,), dtype_of(int)))
    return result


@public(static=("count",), name="permutation")
def _permuted_numbers(key: Any, count: int) -> Any:
    return shuffled(single_key(key), _numbers(count), 0)


@public(static=("axis", "independent"), name="permutation")
def _permuted(key: Any, x: Any, axis: int, independent: bool) -> Any:
    array = as_tracer(x)
    if not array.ndim:
        raise RandomError(point("permutation takes an array, or a concrete integer"))
    dim = axis_of(axis, array.ndim)
    if array.ndim == 1 or independent:
        return shuffled(single_key(key), array, dim)
    order = shuffled(single_key(key), _numbers(array.shape[dim]), 0)
    return snp.take(array, order, axis=dim, mode="promise_in_bounds")


def shuffled(key: Tracer, array: Tracer, dim: int) -> Tracer:
    """Sort by random words, in so many rounds that equal words are negligible (JAX's rule)."""
    rounds = ceil(3 * log(max(1, array.size)) / log((1 << 32) - 1))
    for _ in range(rounds):
        keys = split(key, 2)
        key = keys[0]
        words = draw(keys[1], array.shape, 32)
        _, array = emit("sort", words, array, dim=dim, keys=1, stable=True)
    return array


def choice(
    key: Any,
    a: Any,
    shape: Any = (),
    replace: bool = True,
    p: Any = None,
    axis: int = 0,
    mode: str | None = None,
) -> Any:
    """Return random elements of `a` along `axis`; an integer n denotes the array 0, ..., n - 1.

    `p` are the probabilities of the elements, by default equal; without `replace` no element occurs
    twice. `mode` is accepted for compatibility.
    """
    if _is_count(a):
        return _chosen_numbers(key, p, int(a), shape_of(shape), replace)
    return _chosen(key, a, p, shape_of(shape), replace, axis)


@public(static=("count", "shape", "replace"), name="choice")
def _chosen_numbers(key: Any, p: Any, count: int, shape: tuple[int, ...], replace: bool) -> Any:
    return _places(single_key(key), p, count, shape, replace)


@public(static=("shape", "replace", "axis"), name="choice")
def _chosen(key: Any, a: Any, p: Any, shape: tuple[int, ...], replace: bool, axis: int) -> Any:
    array = as_tracer(a)
    if not array.ndim:
        raise RandomError(point("choice takes an array, or a concrete integer"))
    dim = axis_of(axis, array.ndim)
    positions = _places(single_key(key), p, array.shape[dim], shape, replace)
    return snp.take(array, positions, axis=dim, mode="promise_in_bounds")


def _places(key: Tracer, p: Any, size: int, shape: tuple[int, ...], replace: bool) -> Tracer:
    """Return the indices of the chosen elements."""
    count = int(np.prod(shape, dtype=np.int64))
    if not size and count:
        raise RandomError(point("choice has nothing to choose from"))
    if not replace and count > size:
        raise RandomError(point(f"cannot choose {count} of {size} elements without replacement"))
    found: Tracer
    if p is None and replace:
        found = randint(key, shape, 0, size)
    elif p is None:
        found = snp.reshape(shuffled(key, _numbers(size), 0)[:count], shape)
    else:
        found = snp.reshape(_weighted(key, as_tracer(p), size, count, shape, replace), shape)
    return convert(found, dtype_of(int))


def _weighted(
    key: Tracer, p: Tracer, size: int, count: int, shape: tuple[int, ...], replace: bool
) -> Tracer:
    if p.shape != (size,):
        raise RandomError(
            point(f"choice takes a probability for each of {size} elements, got {p.shape}")
        )
    if p.value.type.dtype not in FLOATS:
        p = convert(p, dtype_of(float))
    name = p.value.type.dtype
    if replace:
        sums = snp.cumsum(p)
        drawn = sums[-1] * (1 - unit(key, shape, name))
        found: Tracer = snp.searchsorted(sums, drawn)
        return found
    noisy = gumbels(key, (size,), name) + snp.log(p)
    values = noisy.value.type.with_shape((count,))
    _, indices = emit("top_k", noisy, result=(values, values.with_dtype("i32")))
    top: Tracer = indices
    return top
