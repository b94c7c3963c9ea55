"""Density estimation by Gaussian kernels: `shardir.scipy.stats.gaussian_kde`.

Sources: D. W. Scott, "Multivariate density estimation" (1992), and B. W. Silverman, "Density
estimation for statistics and data analysis" (1986), for the bandwidths.
"""

from collections.abc import Callable
from math import log, pi
from typing import NoReturn

from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.arrays.array_types import ArrayLike, ShapeLike
from shardir.frontend.arrays.numpy_conversion import abstract_of
from shardir.frontend.call_signatures import with_method_errors
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import ArgumentError, ShapeError
from shardir.frontend.nn.softmax import logsumexp
from shardir.frontend.numpy import api as snp
from shardir.frontend.numpy.linear_algebra.matrix_helpers import square_diagonal, triangular_solve
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import inexact_kind, is_complex
from shardir.frontend.pytree import tree
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.quoting import brief
from shardir.frontend.random.derived_distributions import multivariate_normal
from shardir.frontend.random.keys import split
from shardir.frontend.random.permutations import choice
from shardir.frontend.scipy import special
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import as_tracer, convert
from shardir.frontend.tracing.trace import emit
from shardir.frontend.tracing.tracer import Tracer


@with_method_errors
class gaussian_kde:
    """The density that is the weighted mean of Gaussian densities around the points of a dataset.

    `dataset` has the shape (points,) or (dimensions, points), `weights` (points,). Their covariance
    is that of the dataset, multiplied by the square of a factor: that of Scott ("scott", the
    default) or Silverman ("silverman"), a number, or the result of a function of the object. The
    object is a pytree. Raise `ShapeError` for fewer than two elements and for weights of another
    shape, and `ArgumentError` for complex elements and another `bw_method`.
    """

    neff: Tracer
    """The effective number of points: 1 / sum(weights**2)."""
    dataset: Tracer
    """The points as columns: (dimensions, points)."""
    weights: Tracer
    """The weights, whose sum is 1."""
    covariance: Tracer
    """The covariance matrix of the kernels."""
    inv_cov: Tracer
    """The inverse of `covariance`."""

    @with_argument_errors
    def __init__(
        self,
        dataset: ArrayLike,
        bw_method: "str | ArrayLike | Callable[[gaussian_kde], ArrayLike] | None" = None,
        weights: ArrayLike | None = None,
    ) -> None:
        self.dataset, self.weights, self.neff = _prepare_points(dataset, weights)
        factor: ArrayLike
        if bw_method is None or isinstance(bw_method, str):
            factor = _standard_factor(self.neff, self.d, bw_method)
        elif callable(bw_method):
            factor = bw_method(self)
        elif (
            isinstance(bw_method, (list, tuple))
            or abstract_of(bw_method, "bw_method of gaussian_kde").type.rank
        ):
            raise _bandwidth_error(bw_method)
        else:
            factor = bw_method
        self.covariance, self.inv_cov = _scale_covariance(self.dataset, self.weights, factor)

    @property
    def d(self) -> int:
        """The number of dimensions."""
        return int(self.dataset.shape[0])

    @property
    def n(self) -> int:
        """The number of points of the dataset."""
        return int(self.dataset.shape[1])

    def evaluate(self, points: ArrayLike) -> Tracer:
        """Return the density at points, whose shape is (points,) or (dimensions, points)."""
        return _density(self.dataset, self.weights, self.covariance, points, logarithm=False)

    def __call__(self, points: ArrayLike) -> Tracer:
        """Return the density at points; see `evaluate`."""
        return self.evaluate(points)

    def pdf(self, x: ArrayLike) -> Tracer:
        """Return the density at points; see `evaluate`."""
        return self.evaluate(x)

    def logpdf(self, x: ArrayLike) -> Tracer:
        """Return the logarithm of the density at points."""
        return _density(self.dataset, self.weights, self.covariance, x, logarithm=True)

    def integrate_gaussian(self, mean: ArrayLike, cov: ArrayLike) -> Tracer:
        """Return the integral of the product with a Gaussian density."""
        return _integrate_gaussian(self.dataset, self.weights, self.covariance, mean, cov)

    def integrate_box_1d(self, low: ArrayLike, high: ArrayLike) -> Tracer:
        """Return the integral of a density of one dimension from `low` to `high`."""
        return _integrate_interval(self.dataset, self.weights, self.covariance, low, high)

    def integrate_kde(self, other: "gaussian_kde") -> Tracer:
        """Return the integral of the product with another estimated density."""
        if not isinstance(other, gaussian_kde) or other.d != self.d:
            raise ArgumentError(
                with_location(
                    f"integrate_kde takes a gaussian_kde of {self.d} dimensions, got "
                    + (f"one of {other.d}" if isinstance(other, gaussian_kde) else brief(other))
                )
            )
        return _integrate_product(
            (self.dataset, self.weights, self.covariance),
            (other.dataset, other.weights, other.covariance),
        )

    def resample(self, key: ArrayLike, shape: ShapeLike = ()) -> Tracer:
        """Return random points of the density: an array of shape (dimensions, *shape)."""
        return _resample(key, self.dataset, self.weights, self.covariance, shape=shape)

    def integrate_box(
        self, low_bounds: object, high_bounds: object, maxpts: object = None
    ) -> NoReturn:
        """Raise `ArgumentError`; `integrate_box_1d` integrates densities of one dimension."""
        raise ArgumentError(
            with_location(
                "gaussian_kde integrates over intervals of one dimension; call integrate_box_1d"
            )
        )

    def set_bandwidth(self, bw_method: object = None) -> NoReturn:
        """Raise `ArgumentError`; the bandwidth is an argument of the constructor."""
        raise ArgumentError(
            with_location(
                "the bandwidth of a gaussian_kde is constant; make another one with bw_method="
            )
        )


_FIELDS = ("neff", "dataset", "weights", "covariance", "inv_cov")


def _unflatten(_: object, children: PyTree) -> gaussian_kde:
    made = object.__new__(gaussian_kde)
    for field, child in zip(_FIELDS, children, strict=True):
        setattr(made, field, child)
    return made


tree.register_node(
    gaussian_kde, lambda kde: (tuple(getattr(kde, field) for field in _FIELDS), None), _unflatten
)


@public(name="gaussian_kde")
def _prepare_points(dataset: ArrayLike, weights: ArrayLike | None) -> tuple[Tracer, Tracer, Tracer]:
    """Return the points as columns, their normalized weights, and the effective number."""
    given = [as_tracer(each) for each in (dataset, weights) if each is not None]
    if any(is_complex(each) for each in given):
        raise ArgumentError(with_location("gaussian_kde takes real numbers, got complex ones"))
    kind = inexact_kind(*given)
    points = snp.atleast_2d(convert(given[0], *kind))
    if points.ndim != 2 or points.size < 2:
        raise ShapeError(
            with_location(
                "gaussian_kde takes at least two elements as (points,) or (dimensions, points), "
                f"got shape {given[0].shape}"
            )
        )
    count = points.shape[1]
    if weights is None:
        relative = snp.full(count, 1 / count, points.dtype)
    else:
        relative = snp.atleast_1d(convert(given[1], *kind))
        if relative.shape != (count,):
            raise ShapeError(
                with_location(
                    f"gaussian_kde of {count} points takes one weight for each, got shape "
                    f"{given[1].shape}"
                )
            )
        relative = relative / snp.sum(relative)
    return points, relative, 1 / snp.sum(relative**2)


def _bandwidth_error(given: object) -> ArgumentError:
    return ArgumentError(
        with_location(
            f"bw_method of gaussian_kde is {brief(given)}; it is 'scott', 'silverman', a number or "
            "a function"
        )
    )


def _standard_factor(neff: Tracer, dimensions: int, method: str | None) -> Tracer:
    power = -1 / (dimensions + 4)
    if method in (None, "scott"):
        return snp.power(neff, power)
    if method != "silverman":
        raise _bandwidth_error(method)
    return snp.power(neff * ((dimensions + 2) / 4), power)


@public(name="gaussian_kde")
def _scale_covariance(
    dataset: ArrayLike, weights: ArrayLike, factor: ArrayLike
) -> tuple[Tracer, Tracer]:
    points, scale = as_tracer(dataset), as_tracer(factor)
    whole = snp.atleast_2d(snp.cov(points, rowvar=True, bias=False, aweights=weights))
    return whole * scale**2, snp.linalg.inv(whole) / scale**2


def _as_columns(name: str, points: ArrayLike, dimensions: int) -> Tracer:
    given = as_tracer(points)
    if is_complex(given):
        raise ArgumentError(with_location(f"{name} takes real points, got complex ones"))
    columns = snp.atleast_2d(given)
    if columns.shape == (1, dimensions) and dimensions != 1:
        columns = columns.T
    if columns.ndim != 2 or columns.shape[0] != dimensions:
        raise ShapeError(
            with_location(
                f"{name} of {dimensions} dimensions takes points ({dimensions}, count), got shape "
                f"{given.shape}"
            )
        )
    return as_tracer(columns)


def _log_densities(offsets: Tracer, covariance: Tracer) -> Tracer:
    """Return the logarithms of the Gaussian density at offsets: (dimensions, offsets)."""
    factor: Tracer = emit("cholesky", covariance)
    scaled = triangular_solve(factor, offsets, lower=True)
    scale = snp.sum(snp.log(square_diagonal(factor))) + covariance.shape[0] * log(2 * pi) / 2
    return snp.sum(scaled**2, 0) * -0.5 - scale


def _pairwise_offsets(columns: Tracer, others: Tracer) -> Tracer:
    """Return all differences of columns: (dimensions, columns * others)."""
    return (columns[:, :, None] - others[:, None, :]).reshape(columns.shape[0], -1)


@public(static=("logarithm",), name="gaussian_kde")
def _density(
    dataset: ArrayLike, weights: ArrayLike, covariance: ArrayLike, points: ArrayLike,
    logarithm: bool,
) -> Tracer:  # fmt: skip
    data, relative, matrix = map(as_tracer, (dataset, weights, covariance))
    columns = _as_columns("gaussian_kde", points, data.shape[0])
    kind = inexact_kind(data, columns)
    data, relative, matrix, columns = (
        convert(each, *kind) for each in (data, relative, matrix, columns)
    )
    logarithms = _log_densities(_pairwise_offsets(columns, data), matrix)
    terms = logarithms.reshape(columns.shape[1], data.shape[1])
    if logarithm:
        result: Tracer = logsumexp(terms, axis=1, b=relative)
        return result
    return snp.sum(snp.exp(terms) * relative, 1)


@public(name="integrate_gaussian")
def _integrate_gaussian(
    dataset: ArrayLike, weights: ArrayLike, covariance: ArrayLike, mean: ArrayLike, cov: ArrayLike
) -> Tracer:
    data, matrix = as_tracer(dataset), as_tracer(covariance)
    center, other = snp.atleast_1d(as_tracer(mean)), snp.atleast_2d(as_tracer(cov))
    size = data.shape[0]
    if center.shape != (size,) or other.shape != (size, size):
        raise ShapeError(
            with_location(
                f"integrate_gaussian takes a mean of shape ({size},) and a covariance of shape "
                f"({size}, {size}), got {center.shape} and {other.shape}"
            )
        )
    logarithms = _log_densities(data - center[:, None], matrix + other)
    return snp.sum(snp.exp(logarithms) * as_tracer(weights))


@public(name="integrate_box_1d")
def _integrate_interval(
    dataset: ArrayLike, weights: ArrayLike, covariance: ArrayLike, low: ArrayLike, high: ArrayLike
) -> Tracer:
    data, bounds = as_tracer(dataset), [as_tracer(low), as_tracer(high)]
    if data.shape[0] != 1 or any(each.ndim for each in bounds):
        raise ShapeError(
            with_location(
                "integrate_box_1d takes two numbers and a density of one dimension, got shapes "
                f"{bounds[0].shape} and {bounds[1].shape} and {data.shape[0]} dimensions"
            )
        )
    deviation = snp.sqrt(as_tracer(covariance)[0, 0])
    below, above = (special.ndtr((each - data[0]) / deviation) for each in bounds)
    return snp.sum((above - below) * as_tracer(weights))


@public(name="integrate_kde")
def _integrate_product(
    first: tuple[ArrayLike, ArrayLike, ArrayLike], second: tuple[ArrayLike, ArrayLike, ArrayLike]
) -> Tracer:
    data, weights, covariance = map(as_tracer, first)
    others, other_weights, other_covariance = map(as_tracer, second)
    offsets = _pairwise_offsets(data, others)
    logarithms = _log_densities(offsets, covariance + other_covariance)
    terms = snp.exp(logarithms).reshape(data.shape[1], others.shape[1])
    return snp.sum(weights * (terms @ other_weights))


@public(static=("shape",), name="resample")
def _resample(
    key: ArrayLike, dataset: ArrayLike, weights: ArrayLike, covariance: ArrayLike, shape: ShapeLike
) -> Tracer:
    data, matrix = as_tracer(dataset), as_tracer(covariance)
    for_index, for_offset = split(key)
    index = choice(for_index, data.shape[1], shape, p=weights)
    zeros = snp.zeros(data.shape[0], matrix.dtype)
    offsets = multivariate_normal(for_offset, zeros, matrix, shape, data.dtype)
    return data[:, index] + snp.moveaxis(offsets, -1, 0)
