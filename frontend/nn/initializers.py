"""Parameter initializers with the names of `jax.nn.initializers`.

An initializer is a function of a key, a shape and an element type. Those that scale with the size
of a layer derive it from the shape: `in_axis` are its inputs, `out_axis` its outputs, `batch_axis`
dimensions of independent layers; all others (the window of a convolution) count for both inputs and
outputs.
"""

from collections.abc import Callable, Collection, Sequence
from functools import wraps
from inspect import Parameter, signature
from math import exp, prod, sqrt
from typing import Any

from shardir.frontend.argument_checks import canonicalize_shape, check_integers, check_real
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.arrays.array_types import ArrayLike, DTypeLike, ShapeLike
from shardir.frontend.call_signatures import check_call_signature
from shardir.frontend.errors import ArgumentError, ShapeError
from shardir.frontend.numpy import dtypes
from shardir.frontend.numpy.creation import array_conversion, diagonal_matrices, filling
from shardir.frontend.numpy.elementwise import complex_parts, math_functions
from shardir.frontend.numpy.linear_algebra import linalg
from shardir.frontend.numpy.shaping import reshaping
from shardir.frontend.numpy.tracer_helpers.axes import canonicalize_axis
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.quoting import brief
from shardir.frontend.random import continuous_distributions, keys as random_keys, uniform_numbers
from shardir.frontend.shardings.requested_sharding import ShardingRequest
from shardir.frontend.shardings.resharding import apply_out_sharding
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.tracer import Tracer

__all__ = [
    "Initializer",
    "constant",
    "delta_orthogonal",
    "glorot_normal",
    "glorot_uniform",
    "he_normal",
    "he_uniform",
    "kaiming_normal",
    "kaiming_uniform",
    "lecun_normal",
    "lecun_uniform",
    "normal",
    "ones",
    "orthogonal",
    "truncated_normal",
    "uniform",
    "variance_scaling",
    "xavier_normal",
    "xavier_uniform",
    "zeros",
]

Initializer = Callable[..., Tracer]
"""A function of a key, a shape and an element type that returns the initial values of an array."""

Axes = int | Sequence[int]

TRUNCATED_NORMAL_STDDEV = 0.87962566103423978
"""The standard deviation of a standard normal number truncated to [-2, 2]."""

TRUNCATED_COMPLEX_NORMAL_STDDEV = 0.95311164380491208
"""The standard deviation of a standard normal complex number with modulus at most 2."""


def _add_out_sharding(init: Initializer) -> Initializer:
    """Add the parameter `out_sharding` to an initializer, which states the sharding of the
    result.
    """

    @wraps(init)
    def init_with_sharding(
        *args: PyTree, out_sharding: ShardingRequest = None, **options: PyTree
    ) -> Tracer:
        *given, last = args if len(args) == 4 else (*args, out_sharding)
        check_call_signature(init, init.__name__, given, options)
        return apply_out_sharding(init(*given, **options), last)

    parameters = signature(init).parameters
    added = Parameter("out_sharding", Parameter.POSITIONAL_OR_KEYWORD, default=None)
    described: Any = init_with_sharding
    described.__signature__ = signature(init).replace(parameters=[*parameters.values(), added])
    return init_with_sharding


@_add_out_sharding
def zeros(key: ArrayLike, shape: ShapeLike, dtype: DTypeLike | None = None) -> Tracer:
    """Return zeros; the key is not used."""
    return filling.zeros(shape, _float_dtype(dtype))


@_add_out_sharding
def ones(key: ArrayLike, shape: ShapeLike, dtype: DTypeLike | None = None) -> Tracer:
    """Return ones; the key is not used."""
    return filling.ones(shape, _float_dtype(dtype))


@with_argument_errors
def constant(value: ArrayLike, dtype: DTypeLike | None = None) -> Initializer:
    """Return an initializer with one value for all elements."""

    @_add_out_sharding
    def init(key: Tracer, shape: ShapeLike, dtype: DTypeLike | None = dtype) -> Tracer:
        return filling.full(shape, value, dtype=_float_dtype(dtype))

    return init


@with_argument_errors
def uniform(scale: ArrayLike = 1e-2, dtype: DTypeLike | None = None) -> Initializer:
    """Return an initializer of uniform numbers in [0, scale)."""

    @_add_out_sharding
    def init(key: Tracer, shape: ShapeLike, dtype: DTypeLike | None = dtype) -> Tracer:
        drawn = uniform_numbers.uniform(key, shape, _float_dtype(dtype))
        return drawn * array_conversion.asarray(scale, drawn.dtype)

    return init


@with_argument_errors
def normal(stddev: ArrayLike = 1e-2, dtype: DTypeLike | None = None) -> Initializer:
    """Return an initializer of normal numbers with mean 0."""

    @_add_out_sharding
    def init(key: Tracer, shape: ShapeLike, dtype: DTypeLike | None = dtype) -> Tracer:
        drawn = continuous_distributions.normal(key, shape, _float_dtype(dtype))
        return drawn * array_conversion.asarray(stddev, drawn.dtype)

    return init


@with_argument_errors
def truncated_normal(
    stddev: ArrayLike = 1e-2,
    dtype: DTypeLike | None = None,
    lower: ArrayLike = -2.0,
    upper: ArrayLike = 2.0,
) -> Initializer:
    """Return an initializer of truncated normal numbers.

    `lower` and `upper` are in units of `stddev`, which is the standard deviation before truncation.
    """

    @_add_out_sharding
    def init(key: Tracer, shape: ShapeLike, dtype: DTypeLike | None = dtype) -> Tracer:
        drawn = continuous_distributions.truncated_normal(
            key, lower, upper, shape, _float_dtype(dtype)
        )
        return drawn * array_conversion.asarray(stddev, drawn.dtype)

    return init


@with_argument_errors
def variance_scaling(
    scale: float,
    mode: str,
    distribution: str,
    in_axis: Axes = -2,
    out_axis: Axes = -1,
    batch_axis: Axes = (),
    dtype: DTypeLike | None = None,
) -> Initializer:
    """Return an initializer of random numbers with variance `scale` / n.

    n is the number of inputs (`mode` fan_in) or outputs (fan_out), or their arithmetic (fan_avg) or
    geometric (fan_geo_avg) mean; `distribution` is normal, truncated_normal or uniform. Raise
    `ArgumentError` for other values.
    """
    counts: dict[str, Callable[[float, float], float]] = {
        "fan_in": lambda ins, outs: ins,
        "fan_out": lambda ins, outs: outs,
        "fan_avg": lambda ins, outs: (ins + outs) / 2,
        "fan_geo_avg": lambda ins, outs: sqrt(ins * outs),
    }
    draws: dict[str, Initializer] = {
        "normal": _scaled_normal,
        "truncated_normal": _scaled_truncated_normal,
        "uniform": _scaled_uniform,
    }
    if not check_real("scale of variance_scaling", scale) >= 0:
        raise ArgumentError(
            with_location(f"scale of variance_scaling is at least 0, got {brief(scale)}")
        )
    for label, axes in {"in_axis": in_axis, "out_axis": out_axis, "batch_axis": batch_axis}.items():
        check_integers(f"{label} of variance_scaling", _as_axes(axes))
    _check_choice("mode", mode, counts)
    _check_choice("distribution", distribution, draws)

    @_add_out_sharding
    def init(key: Tracer, shape: ShapeLike, dtype: DTypeLike | None = dtype) -> Tracer:
        ins, outs = _fans(canonicalize_shape(shape), in_axis, out_axis, batch_axis)
        variance = scale / max(1.0, counts[mode](ins, outs))
        return draws[distribution](key, shape, _float_dtype(dtype), variance)

    return init


def _scaled_normal(key: ArrayLike, shape: ShapeLike, dtype: DTypeLike, variance: float) -> Tracer:
    drawn = continuous_distributions.normal(key, shape, dtype)
    return drawn * array_conversion.asarray(sqrt(variance), drawn.dtype)


def _scaled_truncated_normal(
    key: ArrayLike, shape: ShapeLike, dtype: DTypeLike, variance: float
) -> Tracer:
    if dtypes.issubdtype(dtype, dtypes.complexfloating):
        drawn = _random_complex(
            key, shape, dtype, lambda u: -math_functions.log(1 - u * (1 - exp(-4.0)))
        )
        return drawn * array_conversion.asarray(
            sqrt(variance) / TRUNCATED_COMPLEX_NORMAL_STDDEV, drawn.dtype
        )
    drawn = continuous_distributions.truncated_normal(key, -2, 2, shape, dtype)
    return drawn * array_conversion.asarray(sqrt(variance) / TRUNCATED_NORMAL_STDDEV, drawn.dtype)


def _scaled_uniform(key: ArrayLike, shape: ShapeLike, dtype: DTypeLike, variance: float) -> Tracer:
    if dtypes.issubdtype(dtype, dtypes.complexfloating):
        drawn = _random_complex(key, shape, dtype, lambda u: 2 * u)
        return drawn * array_conversion.asarray(sqrt(variance), drawn.dtype)
    drawn = uniform_numbers.uniform(key, shape, dtype, -1)
    return drawn * array_conversion.asarray(sqrt(3 * variance), drawn.dtype)


def _random_complex(
    key: ArrayLike, shape: ShapeLike, dtype: DTypeLike, square: Callable[[PyTree], PyTree]
) -> Tracer:
    """Return complex numbers with uniform angle and squared modulus `square(u)`, u uniform."""
    keys = random_keys.split(key)
    real = dtypes.finfo(dtype).dtype
    modulus = math_functions.sqrt(square(uniform_numbers.uniform(keys[0], shape, real)))
    angle = 2 * dtypes.pi * uniform_numbers.uniform(keys[1], shape, real)
    return modulus.astype(dtype) * math_functions.exp(1j * angle.astype(dtype))


def _check_choice(word: str, given: str, known: Collection[str]) -> None:
    if not isinstance(given, str) or given not in known:
        raise ArgumentError(
            with_location(f"{word} of variance_scaling is one of {', '.join(known)}, got {given!r}")
        )


def _float_dtype(dtype: DTypeLike | None) -> DTypeLike:
    return dtypes.result_type(float) if dtype is None else dtype


def _fans(shape: tuple[int, ...], ins: Axes, outs: Axes, batch: Axes) -> tuple[float, float]:
    """Return the number of inputs and outputs of a layer of this shape."""
    if len(shape) <= 1 and ins == -2:
        raise ShapeError(
            with_location(
                f"an initializer that scales with the layer needs a shape of two dimensions or "
                f"more, got {shape}; use normal or uniform for biases, or name in_axis"
            )
        )
    for i in (i for axes in (ins, outs, batch) for i in _as_axes(axes)):
        if not -len(shape) <= i < len(shape):
            raise ArgumentError(
                with_location(
                    f"an initializer has the axis {i}, which is out of range for the shape {shape}"
                )
            )
    sizes = [prod(shape[i] for i in _as_axes(axes)) for axes in (ins, outs, batch)]
    window = prod(shape) / max(prod(sizes), 1)
    return sizes[0] * window, sizes[1] * window


def _as_axes(axes: Axes) -> Sequence[int]:
    return axes if isinstance(axes, Sequence) else (axes,)


def _define_variance_scaling(
    name: str, scale: float, mode: str, distribution: str
) -> Callable[..., Initializer]:
    def make(
        in_axis: Axes = -2,
        out_axis: Axes = -1,
        batch_axis: Axes = (),
        dtype: DTypeLike | None = None,
    ) -> Initializer:
        return variance_scaling(scale, mode, distribution, in_axis, out_axis, batch_axis, dtype)

    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"Return `variance_scaling({scale}, {mode!r}, {distribution!r})`."
    return with_argument_errors(make)


xavier_uniform = glorot_uniform = _define_variance_scaling(
    "glorot_uniform", 1.0, "fan_avg", "uniform"
)
xavier_normal = glorot_normal = _define_variance_scaling(
    "glorot_normal", 1.0, "fan_avg", "truncated_normal"
)
lecun_uniform = _define_variance_scaling("lecun_uniform", 1.0, "fan_in", "uniform")
lecun_normal = _define_variance_scaling("lecun_normal", 1.0, "fan_in", "truncated_normal")
kaiming_uniform = he_uniform = _define_variance_scaling("he_uniform", 2.0, "fan_in", "uniform")
kaiming_normal = he_normal = _define_variance_scaling(
    "he_normal", 2.0, "fan_in", "truncated_normal"
)


@with_argument_errors
def orthogonal(
    scale: ArrayLike = 1.0, column_axis: int = -1, dtype: DTypeLike | None = None
) -> Initializer:
    """Return an initializer of matrices with orthonormal rows or columns, whichever are fewer.

    All dimensions except `column_axis` are combined to rows.
    """

    @_add_out_sharding
    def init(key: Tracer, shape: ShapeLike, dtype: DTypeLike | None = dtype) -> Tracer:
        sizes = canonicalize_shape(shape)
        if len(sizes) < 2:
            raise ArgumentError(
                with_location(f"orthogonal needs a shape of two dimensions or more, got {sizes}")
            )
        axis = canonicalize_axis(column_axis, len(sizes))
        columns = sizes[axis]
        rows = prod(sizes) // max(columns, 1)
        tall = (rows, columns) if rows > columns else (columns, rows)
        q, r = linalg.qr(continuous_distributions.normal(key, tall, _float_dtype(dtype)))
        diagonal = diagonal_matrices.diag(r)
        q = q * (diagonal / complex_parts.abs(diagonal))
        if rows < columns:
            q = q.T
        others = [size for i, size in enumerate(sizes) if i != axis]
        result = reshaping.moveaxis(q.reshape(*others, columns), -1, axis)
        return result * array_conversion.asarray(scale, result.dtype)

    return init


@with_argument_errors
def delta_orthogonal(
    scale: ArrayLike = 1.0, column_axis: int = -1, dtype: DTypeLike | None = None
) -> Initializer:
    """Return an initializer of convolutions that are orthogonal at the window's centre, else 0.

    Shapes are (window..., inputs, outputs) with a window of one to three dimensions. Source: Xiao
    et al., "Dynamical Isometry and a Mean Field Theory of CNNs", 2018.
    """

    @_add_out_sharding
    def init(key: Tracer, shape: ShapeLike, dtype: DTypeLike | None = dtype) -> Tracer:
        sizes = canonicalize_shape(shape)
        if len(sizes) not in (3, 4, 5) or sizes[-1] < sizes[-2]:
            raise ArgumentError(
                with_location(
                    "delta_orthogonal needs a shape (window..., inputs, outputs) of three to five "
                    f"dimensions with no fewer outputs than inputs, got {sizes}"
                )
            )
        name = _float_dtype(dtype)
        matrix = orthogonal(scale, column_axis, name)(key, (sizes[-1], sizes[-1]))
        middle = tuple((size - 1) // 2 for size in sizes[:-2])
        filled: Tracer = filling.zeros(sizes, name).at[middle].set(matrix[: sizes[-2]])
        return filled

    return init
