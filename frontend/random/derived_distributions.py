"""Distributions that are derived from normal and uniform numbers, among them random orthogonal and
unitary matrices.
"""

from shardir.errors import OperationTypeError, count_noun
from shardir.frontend.argument_checks import canonicalize_shape
from shardir.frontend.arrays.array_types import ArrayLike, DTypeLike, ShapeLike
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import RandomError, ShapeError
from shardir.frontend.numpy.elementwise import math_functions, selection
from shardir.frontend.numpy.linear_algebra import einsum, linalg
from shardir.frontend.numpy.linear_algebra.matrix_helpers import square_diagonal, transpose_matrices
from shardir.frontend.numpy.reductions import basic_reductions
from shardir.frontend.numpy.shaping import reshaping
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import as_operands, emit_elementwise
from shardir.frontend.random.continuous_distributions import normal, rademacher, resolve_shape
from shardir.frontend.random.keys import require_single_key, split
from shardir.frontend.random.uniform_numbers import float_dtype_name, uniform
from shardir.frontend.shardings.requested_sharding import ShardingRequest
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import as_tracer, broadcast, convert, promote_inexact
from shardir.frontend.tracing.trace import emit_results
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.dtypes import NARROW_FLOATS
from shardir.ir.types import NUMPY_DTYPES


@public(static=("shape", "dtype"))
def maxwell(
    key: ArrayLike,
    shape: ShapeLike = (),
    dtype: DTypeLike | None = None,
    *,
    out_sharding: ShardingRequest = None,
) -> Tracer:
    """Return Maxwell-distributed numbers: the norms of vectors of three normal numbers."""
    drawn = normal(require_single_key(key), (*canonicalize_shape(shape), 3), dtype)
    return math_functions.sqrt(basic_reductions.sum(drawn * drawn, axis=-1))


@public(static=("shape", "dtype"))
def double_sided_maxwell(
    key: ArrayLike,
    loc: ArrayLike,
    scale: ArrayLike,
    shape: ShapeLike = (),
    dtype: DTypeLike | None = None,
) -> Tracer:
    """Return `maxwell` numbers with random sign, times `scale`, plus `loc`."""
    name = float_dtype_name(dtype)
    loc, scale = (convert(as_tracer(x), name) for x in (loc, scale))
    common = resolve_shape(None, loc, scale)
    full_shape = (*(canonicalize_shape(shape) or common), *common)
    keys = split(require_single_key(key))
    size = maxwell(keys[0], full_shape, dtype)
    return rademacher(keys[1], full_shape, NUMPY_DTYPES[name]) * size * scale + loc


@public(static=("shape", "dtype"))
def triangular(
    key: ArrayLike,
    left: ArrayLike,
    mode: ArrayLike,
    right: ArrayLike,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: ShardingRequest = None,
) -> Tracer:
    """Return numbers of the triangular distribution from `left` to `right` with the given
    `mode`.
    """
    name = float_dtype_name(dtype)
    ends = [convert(as_tracer(x), name) for x in (left, mode, right)]
    result_shape = resolve_shape(shape, *ends)
    left, mode, right = (broadcast(x, result_shape) for x in ends)
    u = uniform(require_single_key(key), result_shape, NUMPY_DTYPES[name])
    below_mode = left + math_functions.sqrt(u * (right - left) * (mode - left))
    above_mode = right - math_functions.sqrt((1 - u) * (right - left) * (right - mode))
    return selection.where(u < (mode - left) / (right - left), below_mode, above_mode)


@public(static=("shape", "dtype"))
def wald(
    key: ArrayLike,
    mean: ArrayLike,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: ShardingRequest = None,
) -> Tracer:
    """Return numbers of the Wald (inverse Gaussian) distribution of the given mean and scale 1."""
    name = float_dtype_name(dtype)
    mean = convert(as_tracer(mean), name)
    result_shape = resolve_shape(shape, mean)
    mean = broadcast(mean, result_shape)
    keys = split(require_single_key(key))
    v = normal(keys[0], result_shape, dtype)
    z = uniform(keys[1], result_shape, NUMPY_DTYPES[name])
    y = v * v
    square = mean * mean
    root = math_functions.sqrt(4 * mean * y + square * (y * y))
    x = mean + square * y / 2 - mean / 2 * root
    return selection.where(z <= mean / (mean + x), x, square / x)


@public(static=("shape", "dtype", "method"))
def multivariate_normal(
    key: ArrayLike,
    mean: ArrayLike,
    cov: ArrayLike,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
    method: str = "cholesky",
    *,
    out_sharding: ShardingRequest = None,
) -> Tracer:
    """Return normal vectors with a mean and a covariance matrix.

    `shape` is the shape of the result without the vectors. `method` is the factorization of the
    covariance matrix: 'cholesky', 'eigh' or 'svd'.
    """
    mean, cov = promote_inexact(*as_operands(mean, cov))
    name = float_dtype_name(mean.dtype if dtype is None else dtype)
    mean, cov = (convert(x, name) for x in (mean, cov))
    size = mean.shape[-1] if mean.ndim else 0
    if not mean.ndim or cov.shape[-2:] != (size, size):
        raise RandomError(
            with_location(
                f"multivariate_normal got a mean of shape {mean.shape} and a covariance of shape "
                f"{cov.shape}; they are (..., n) and (..., n, n)"
            )
        )
    if method not in ("cholesky", "eigh", "svd"):
        raise RandomError(
            with_location(
                f"method={method!r} of multivariate_normal is none of cholesky, eigh, svd"
            )
        )
    common = reshaping.broadcast_shapes(mean.shape[:-1], cov.shape[:-2])
    front = common if shape is None else canonicalize_shape(shape)
    if method == "cholesky":
        root = linalg.cholesky(cov)
    elif method == "eigh":
        weights, vectors = linalg.eigh(cov)
        root = vectors * math_functions.sqrt(weights[..., None, :])
    else:
        vectors, weights, _ = linalg.svd(cov)
        root = vectors * math_functions.sqrt(weights[..., None, :])
    drawn = normal(require_single_key(key), (*front, size), NUMPY_DTYPES[name])
    return mean + einsum.einsum("...ij,...j->...i", root, drawn)


@public(static=("n", "shape", "dtype", "m"))
def orthogonal(
    key: ArrayLike,
    n: int,
    shape: ShapeLike = (),
    dtype: DTypeLike | None = None,
    m: int | None = None,
    *,
    out_sharding: ShardingRequest = None,
) -> Tracer:
    """Return matrices of n rows and m (or n) columns with orthonormal rows or columns.

    Square matrices are uniformly distributed over all rotations and reflections (F. Mezzadri, "How
    to generate random matrices from the classical compact groups", 2007).
    """
    rows, columns = canonicalize_shape((n, n if m is None else m))
    if not rows or not columns:
        raise ShapeError(
            with_location(
                f"orthogonal matrices cannot have {count_noun(rows, 'row')} and "
                f"{count_noun(columns, 'column')}"
            )
        )
    drawn = as_tracer(
        normal(key, (*canonicalize_shape(shape), max(rows, columns), min(rows, columns)), dtype)
    )
    if drawn.value.type.dtype in NARROW_FLOATS:
        raise OperationTypeError(
            with_location(
                f"orthogonal draws float32 or wider numbers, not {drawn.value.type.dtype}"
            )
        )
    q, r = emit_results("qr", drawn, full=False)
    result = as_tracer(q * emit_elementwise("sign", square_diagonal(r))[..., None, :])
    return transpose_matrices(result) if rows < columns else result
