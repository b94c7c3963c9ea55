"""`gaussian_kde`: agreement with SciPy, transformations, and wrong arguments."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardir as sd
from shardir.errors import ShardirError
from shardir.scipy.stats import gaussian_kde
from tests.error_assertions import first_line, raw
from tests.optional_dependencies import require

RNG = np.random.default_rng(0)
DATA: Any = RNG.standard_normal((2, 30)).astype(np.float32)
POINTS: Any = RNG.standard_normal((2, 7)).astype(np.float32)
WEIGHTS: Any = RNG.random(30).astype(np.float32)


@pytest.mark.parametrize("bandwidth", [None, "silverman", 0.3, lambda kde: 0.5])
@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_values_are_those_of_scipy(bandwidth: Any, weights: Any) -> None:
    require("jax")  # It installs SciPy.
    import scipy.stats

    ours = gaussian_kde(DATA, bandwidth, weights)
    theirs = scipy.stats.gaussian_kde(DATA, bandwidth, weights)
    assert (ours.d, ours.n) == (2, 30)
    center, matrix = POINTS[:, 0], np.eye(2, dtype=np.float32)
    for found, expected in (
        (ours(POINTS), theirs(POINTS)),
        (ours.pdf(POINTS[:, 1]), theirs.pdf(POINTS[:, 1])),
        (ours.logpdf(POINTS), theirs.logpdf(POINTS)),
        (ours.covariance, theirs.covariance),
        (ours.inv_cov, theirs.inv_cov),
        (ours.neff, theirs.neff),
        (ours.integrate_gaussian(center, matrix), theirs.integrate_gaussian(center, matrix)),
        (ours.integrate_kde(ours), theirs.integrate_kde(theirs)),
    ):
        np.testing.assert_allclose(found, expected, 2e-3)
    line, other = gaussian_kde(DATA[0]), scipy.stats.gaussian_kde(DATA[0])
    np.testing.assert_allclose(
        line.integrate_box_1d(-1.0, 0.5), other.integrate_box_1d(-1, 0.5), 1e-4
    )


def test_random_points_are_those_of_jax() -> None:
    require("jax")
    import jax
    import jax.scipy.stats

    ours = gaussian_kde(DATA).resample(sd.random.key(3), (5,))
    theirs = jax.scipy.stats.gaussian_kde(DATA).resample(jax.random.key(3), (5,))
    np.testing.assert_allclose(ours, theirs, 1e-4, 1e-5)
    assert gaussian_kde(DATA).resample(sd.random.key(3), (4, 3)).shape == (2, 4, 3)


def test_transformations() -> None:
    kde = gaussian_kde(DATA)
    expected = kde(POINTS)
    np.testing.assert_allclose(sd.jit(lambda kde, x: kde(x))(kde, POINTS), expected, 1e-5)
    mapped = sd.vmap(lambda x: kde(x)[0], in_axes=1)(POINTS)
    np.testing.assert_allclose(mapped, expected, 1e-5)
    with sd.cpu_devices(8):
        sharding = sd.NamedSharding(sd.make_mesh((8,), ("x",)), sd.P(None, "x"))
        data: Any = RNG.standard_normal((2, 32)).astype(np.float32)
        density = sd.jit(lambda data: gaussian_kde(data)(POINTS))
        np.testing.assert_allclose(density(sd.device_put(data, sharding)), density(data), 1e-4)
    direction = RNG.standard_normal(DATA.shape).astype(np.float32)

    def total(data: Any) -> Any:
        return gaussian_kde(data)(POINTS).sum()

    slope = np.sum(np.asarray(sd.grad(total)(DATA)) * direction)
    change = float(total(DATA + 1e-2 * direction) - total(DATA - 1e-2 * direction)) / 2e-2
    np.testing.assert_allclose(slope, change, 2e-2)


FAULTS: list[tuple[Callable[[], Any], str]] = [
    (lambda: gaussian_kde([1.0]),
     "gaussian_kde takes at least two elements as (points,) or (dimensions, points), got shape "
     "(1,)"),
    (lambda: gaussian_kde(DATA * 1j), "gaussian_kde takes real numbers, got complex ones"),
    (lambda: gaussian_kde(DATA, weights=WEIGHTS[1:]),
     "gaussian_kde of 30 points takes one weight for each, got shape (29,)"),
    (lambda: gaussian_kde(DATA, "thin"),
     "bw_method of gaussian_kde is 'thin'; it is 'scott', 'silverman', a number or a function"),
    (lambda: gaussian_kde(DATA, [1.0, 2.0]),
     "bw_method of gaussian_kde is [1.0, 2.0]; it is 'scott', 'silverman', a number or a function"),
    (lambda: gaussian_kde(DATA)(POINTS[:1]),
     "gaussian_kde of 2 dimensions takes points (2, count), got shape (1, 7)"),
    (lambda: gaussian_kde(DATA)(POINTS * 1j), "gaussian_kde takes real points, got complex ones"),
    (lambda: gaussian_kde(DATA).integrate_gaussian(0.0, 1.0),
     "integrate_gaussian takes a mean of shape (2,) and a covariance of shape (2, 2), got (1,) and "
     "(1, 1)"),
    (lambda: gaussian_kde(DATA).integrate_box_1d(0.0, 1.0),
     "integrate_box_1d takes two numbers and a density of one dimension, got shapes () and () and "
     "2 dimensions"),
    (lambda: gaussian_kde(DATA).integrate_kde(gaussian_kde(DATA[0])),
     "integrate_kde takes a gaussian_kde of 2 dimensions, got one of 1"),
    (lambda: gaussian_kde(DATA).integrate_kde(raw(3)),
     "integrate_kde takes a gaussian_kde of 2 dimensions, got 3"),
    (lambda: gaussian_kde(DATA).integrate_box(0, 1),
     "gaussian_kde integrates over intervals of one dimension; call integrate_box_1d"),
    (lambda: gaussian_kde(DATA).set_bandwidth(1),
     "the bandwidth of a gaussian_kde is constant; make another one with bw_method="),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), FAULTS)
def test_wrong_arguments(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ShardirError) as error:
        call()
    assert first_line(error) == message
