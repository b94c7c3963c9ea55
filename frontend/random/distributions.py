"""Numbers that are distributed in other ways: all are made from uniform ones."""

from typing import Any

import ml_dtypes
import numpy as np

from shardir.frontend import numpy as snp
from shardir.frontend.eager import public
from shardir.frontend.errors import RandomError
from shardir.frontend.locations import point
from shardir.frontend.numpy.axes import axis_of, shape_of
from shardir.frontend.operands import as_tracer, broadcast_shapes, constant, convert
from shardir.frontend.promotion import dtype_of
from shardir.frontend.random.keys import single_key, split
from shardir.frontend.random.uniformly import between, floating, unit
from shardir.frontend.trace import emit
from shardir.frontend.tracer import Tracer
from shardir.types import COMPLEX, FLOATS, NUMPY_DTYPES, REAL_OF

_finfo: Any = ml_dtypes.finfo


def _limits(name: str) -> Any:
    """What the floating-point type can hold."""
    return _finfo(NUMPY_DTYPES[name])


def _number(value: Any, name: str) -> Tracer:
    return constant(np.asarray(value).astype(NUMPY_DTYPES[name]))


def _standard(key: Tracer, shape: tuple[int, ...], name: str) -> Tracer:
    dtype = NUMPY_DTYPES[name]
    low = np.nextafter(dtype.type(-1), dtype.type(0))
    return _normal(between(key, shape, name, _number(low, name), 1.0))


def _normal(uniform: Tracer) -> Tracer:
    """Normal numbers from uniform ones, by the polynomials of XLA: they are to be JAX's."""
    inverse: Tracer = emit("erf_inv", uniform, as_xla=True)
    return _times(inverse, np.sqrt(2))


def _times(x: Tracer, factor: Any) -> Tracer:
    scaled: Tracer = snp.multiply(x, _number(factor, x.value.type.dtype))
    return scaled


@public(static=("shape", "dtype"))
def normal(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Normal numbers of mean 0 and variance 1; complex ones have it from both parts together."""
    kind = dtype_of(float if dtype is None else dtype)
    if kind in COMPLEX:
        keys = split(single_key(key))
        real, imag = (_standard(keys[i], shape_of(shape), REAL_OF[kind]) for i in range(2))
        return emit("complex", real, imag) / _number(np.sqrt(2), kind)
    return _standard(single_key(key), shape_of(shape), floating(dtype))


@public(static=("shape", "dtype"))
def lognormal(
    key: Any, sigma: Any = 1.0, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None
) -> Any:
    """e to the power of normal numbers of mean 0 and standard deviation `sigma`."""
    name = floating(dtype)
    spread = convert(as_tracer(sigma), name)
    wanted = wanted_shape(shape, spread)
    return snp.exp(_standard(single_key(key), wanted, name) * spread)


def wanted_shape(shape: Any, *parameters: Tracer) -> tuple[int, ...]:
    """The shape of the numbers: that asked for, or that of the parameters together."""
    common = broadcast_shapes(*(x.shape for x in parameters))
    wanted = common if shape is None else shape_of(shape)
    if not _fits(common, wanted):
        raise RandomError(
            point(f"parameters of shape {common} do not broadcast to numbers of shape {wanted}")
        )
    return wanted


def _fits(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """Whether a shape broadcasts to the one that is wanted."""
    try:
        return np.broadcast_shapes(wanted, shape) == wanted
    except ValueError:
        return False


@public(static=("shape", "dtype"))
def truncated_normal(
    key: Any,
    lower: Any,
    upper: Any,
    shape: Any = None,
    dtype: Any = None,
    *,
    out_sharding: Any = None,
) -> Any:
    """Normal numbers of mean 0 and variance 1, given that they lie in (lower, upper)."""
    name = floating(dtype)
    low, high = (convert(as_tracer(x), name) for x in (lower, upper))
    wanted = wanted_shape(shape, low, high)
    root = _number(np.sqrt(2), name)
    a, b = emit("erf", low / root), emit("erf", high / root)
    drawn = _normal(between(single_key(key), wanted, name, a, b))
    nearest = emit("nextafter", low, snp.full_like(low, np.inf))
    farthest = emit("nextafter", high, snp.full_like(high, -np.inf))
    return snp.clip(drawn, nearest, farthest)


@public(static=("shape",))
def bernoulli(key: Any, p: Any = 0.5, shape: Any = None, *, out_sharding: Any = None) -> Any:
    """Bools, true with probability `p`, a float in [0, 1]; `shape` is that of `p` unless told."""
    chance = as_tracer(p)
    if chance.value.type.dtype not in FLOATS:
        chance = convert(chance, dtype_of(float))
    wanted = wanted_shape(shape, chance)
    return unit(single_key(key), wanted, chance.value.type.dtype) < chance


@public(static=("shape", "dtype"))
def exponential(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Exponentially distributed numbers of mean 1."""
    drawn = unit(single_key(key), shape_of(shape), floating(dtype))
    return snp.negative(snp.log1p(snp.negative(drawn)))


def gumbels(key: Tracer, shape: tuple[int, ...], name: str) -> Tracer:
    """Standard Gumbel numbers: -log(-log(u))."""
    drawn = between(key, shape, name, _number(_limits(name).tiny, name), 1.0)
    made: Tracer = -snp.log(-snp.log(drawn))
    return made


@public(static=("shape", "dtype"))
def gumbel(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Standard Gumbel numbers: -log(-log(u)) of uniform u."""
    return gumbels(single_key(key), shape_of(shape), floating(dtype))


@public(static=("axis", "shape", "replace"))
def categorical(
    key: Any,
    logits: Any,
    axis: int = -1,
    shape: Any = None,
    replace: bool = True,
    *,
    out_sharding: Any = None,
) -> Any:
    """Indices along `axis`, each with the probability whose logarithm its logit is.

    `shape` is that of the result; it ends with the shape of `logits` without the axis. Without
    `replace` the draws in front of those dimensions differ from each other.
    """
    weights = as_tracer(logits)
    if weights.value.type.dtype not in FLOATS:
        weights = convert(weights, dtype_of(float))
    name = weights.value.type.dtype
    # The axis counted from the end, where it is whatever the draws put in front.
    axis = axis_of(axis, weights.ndim) - weights.ndim
    batch = list(weights.shape)
    classes = batch.pop(axis)
    wanted = tuple(batch) if shape is None else shape_of(shape)
    front = wanted[: len(wanted) - len(batch)]
    if not _fits(tuple(batch), wanted[len(front) :]):
        raise RandomError(
            point(
                f"the shape {wanted} of the draws does not end with that of logits {tuple(batch)}"
            )
        )
    single = single_key(key)
    if not replace:
        return _different(single, weights, axis, front, wanted)
    full = list(wanted)
    full.insert(len(wanted) + axis + 1, classes)
    return snp.argmax(gumbels(single, tuple(full), name) + weights, axis=axis)


def _different(
    key: Tracer, weights: Tracer, axis: int, front: tuple[int, ...], wanted: tuple[int, ...]
) -> Tracer:
    count = int(np.prod(front, dtype=np.int64))
    if count > weights.shape[axis]:
        raise RandomError(
            point(f"cannot draw {count} of {weights.shape[axis]} classes without replacement")
        )
    noisy = snp.moveaxis(gumbels(key, weights.shape, weights.value.type.dtype) + weights, axis, -1)
    values = noisy.value.type.with_shape((*noisy.shape[:-1], count))
    _, indices = emit("top_k", noisy, result=(values, values.with_dtype("i32")))
    found: Tracer = snp.reshape(snp.moveaxis(indices, -1, 0), wanted)
    return found


@public(static=("shape", "dtype"))
def laplace(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Laplace-distributed numbers of mean 0 and scale 1."""
    name = floating(dtype)
    low = NUMPY_DTYPES[name].type(-1) + NUMPY_DTYPES[name].type(_limits(name).eps)
    drawn = between(single_key(key), shape_of(shape), name, _number(low, name), 1.0)
    return snp.multiply(emit("sign", drawn), snp.log1p(-snp.abs(drawn)))


def _above(key: Any, shape: Any, name: str, low: Any) -> Tracer:
    """Uniform in [low, 1)."""
    return between(single_key(key), shape_of(shape), name, _number(low, name), 1.0)


@public(static=("shape", "dtype"))
def logistic(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Logistically distributed numbers of mean 0 and scale 1."""
    name = floating(dtype)
    drawn = _above(key, shape, name, _limits(name).tiny)
    return snp.log(drawn / (1 - drawn))


@public(static=("shape", "dtype"))
def cauchy(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Cauchy-distributed numbers of location 0 and scale 1."""
    name = floating(dtype)
    drawn = _above(key, shape, name, _limits(name).eps)
    return snp.tan(_times(drawn - _number(0.5, name), np.pi))


@public(static=("shape", "dtype"))
def pareto(
    key: Any, b: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None
) -> Any:
    """Pareto-distributed numbers of scale 1 and shape `b`."""
    name = floating(dtype)
    tail = convert(as_tracer(b), name)
    return snp.exp(exponential(key, wanted_shape(shape, tail), NUMPY_DTYPES[name]) / tail)


@public(static=("shape", "dtype"))
def rayleigh(
    key: Any, scale: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None
) -> Any:
    """Rayleigh-distributed numbers: the length of two normal numbers of that `scale`."""
    name = floating(dtype)
    sigma = convert(as_tracer(scale), name)
    drawn = unit(single_key(key), wanted_shape(shape, sigma), name)
    return sigma * snp.sqrt(_times(snp.log(drawn), -2))


@public(static=("shape", "dtype"))
def weibull_min(
    key: Any, scale: Any, concentration: Any, shape: Any = (), dtype: Any = None
) -> Any:
    """Weibull-distributed numbers: `scale` * (-log(1 - u)) ** (1 / `concentration`), u uniform."""
    name = floating(dtype)
    drawn = unit(single_key(key), shape_of(shape), name)
    power = 1 / convert(as_tracer(concentration), name)
    return snp.power(-snp.log1p(-drawn), power) * convert(as_tracer(scale), name)


@public(static=("shape", "dtype"))
def rademacher(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """1 or -1, both with probability one half, of the default integer type unless told."""
    name = dtype_of(int if dtype is None else dtype)
    heads = bernoulli(key, 0.5, shape_of(shape))
    return convert(snp.where(heads, np.int32(1), np.int32(-1)), name)
