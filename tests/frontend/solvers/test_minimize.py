"""`minimize` by BFGS: minima of known functions, transformations, and wrong arguments."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardir as sd
from shardir import numpy as snp
from shardir.errors import ShardirError
from shardir.frontend.config import config
from shardir.scipy.optimize import OptimizeResults, minimize
from tests.error_assertions import first_line, raw
from tests.optional_dependencies import require

POINTS: Any = np.random.default_rng(0).standard_normal((4, 3))


def rosenbrock(x: Any) -> Any:
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def himmelblau(x: Any) -> Any:
    return (x[0] ** 2 + x[1] - 11) ** 2 + (x[0] + x[1] ** 2 - 7) ** 2


def bfgs(fun: Any, x: Any, *args: Any, **options: Any) -> OptimizeResults:
    return minimize(fun, x, args, method="BFGS", options=options)


@pytest.mark.parametrize(
    ("fun", "start", "expected"),
    [
        (rosenbrock, np.zeros(5), np.ones(5)),
        (himmelblau, np.ones(2), np.array([3.0, 2.0])),
        (lambda x: 0.26 * (x**2).sum() - 0.48 * x[0] * x[1], np.ones(2), np.zeros(2)),
    ],
)
def test_minima_of_known_functions(fun: Any, start: Any, expected: Any) -> None:
    with config(enable_x64=True):
        result = bfgs(fun, start)
        assert bool(result.success)
        assert (int(result.status), result.nfev) == (0, result.njev)
        np.testing.assert_allclose(result.x, expected, atol=1e-5)
        np.testing.assert_allclose(result.fun, fun(snp.asarray(result.x)))
        np.testing.assert_allclose(result.jac, sd.grad(fun)(result.x), atol=1e-12)
        assert np.abs(result.jac).max() < 1e-5
        inverse = np.linalg.inv(sd.hessian(fun)(result.x))
        np.testing.assert_allclose(result.hess_inv, inverse, 0.3, 0.05)
        # The numbers of steps are those of other implementations of the algorithm.
        require("jax")  # It installs SciPy.
        import scipy.optimize

        theirs = scipy.optimize.minimize(fun, start, method="BFGS")
        assert int(result.nit) <= 2 * theirs.nit + 2
        assert int(result.nfev) <= theirs.nfev


def test_results_have_the_dtype_of_the_start() -> None:
    result = bfgs(lambda x, a: ((x - a) ** 2).sum(), np.array([1, 5]), 3.0)
    assert result.x.dtype == result.hess_inv.dtype == np.float32
    np.testing.assert_allclose(result.x, [3, 3], 1e-5)
    assert int(bfgs(lambda x: ((x - 1) ** 2).sum(), np.ones(2)).nit) == 0


def test_transformations() -> None:
    with config(enable_x64=True):
        found = sd.jit(sd.vmap(lambda x: bfgs(rosenbrock, x).x))(POINTS)
        np.testing.assert_allclose(found, np.ones((4, 3)), 1e-4)
        alone = [bfgs(rosenbrock, x).nit for x in POINTS]
        together = sd.vmap(lambda x: bfgs(rosenbrock, x).nit)(POINTS)
        np.testing.assert_array_equal(together, alone)
    with sd.cpu_devices(8):
        sharding = sd.NamedSharding(sd.make_mesh((8,), ("x",)), sd.P("x"))
        x = sd.device_put(np.ones(16, np.float32), sharding)
        result = sd.jit(lambda x: bfgs(lambda x: ((x - 2) ** 4 + x).sum(), x).x)(x)
        np.testing.assert_allclose(result, 2 - 0.25 ** (1 / 3) * np.ones(16), 1e-3)


def test_status_of_minimizations_that_do_not_converge() -> None:
    assert int(bfgs(rosenbrock, np.zeros(2), maxiter=3).status) == 1
    assert int(bfgs(rosenbrock, np.zeros(2), maxiter=3).nit) == 3
    assert int(bfgs(lambda x: -x.sum(), np.ones(2)).status) == 5
    for fun in (lambda x: x.sum() * np.nan, lambda x: snp.abs(x).sum()):
        result = bfgs(fun, np.full(2, 0.3))
        assert (int(result.status), bool(result.success), int(result.nit)) == (3, False, 1)
    loose = bfgs(rosenbrock, np.zeros(2), gtol=10.0)
    assert (int(loose.status), int(loose.nit)) == (0, 0)
    assert int(bfgs(rosenbrock, np.zeros(2), gtol=2.5, norm=1).nit) == 0


def test_tol_is_the_default_limit_of_the_gradient() -> None:
    loose = minimize(rosenbrock, np.zeros(2), method="BFGS", tol=10.0)
    assert (int(loose.status), int(loose.nit)) == (0, 0)
    strict = minimize(rosenbrock, np.zeros(2), method="BFGS", tol=10.0, options={"gtol": 1e-3})
    assert np.abs(strict.jac).max() < 1e-3


def test_points_are_those_of_jax() -> None:
    require("jax")
    import jax
    from jax.scipy.optimize import minimize as their_minimize

    for fun, start in (
        (rosenbrock, np.zeros(2)),
        (rosenbrock, np.array([1.3, 0.7, 0.8, 1.9, 1.2])),
        (himmelblau, np.zeros(2)),
        (lambda x: ((x - 2) ** 4 + x).sum(), np.ones(3)),
    ):
        for steps in (1, 3, 10):
            options = {"maxiter": steps, "gtol": 0.0}
            found = bfgs(fun, start.astype("f"), **options)
            expected = their_minimize(
                fun, jax.numpy.asarray(start, "float32"), method="BFGS", options=options
            )
            if int(expected.status) == 1:
                np.testing.assert_allclose(found.x, expected.x, rtol=1e-4, atol=1e-5)
                assert int(found.nfev) == int(expected.nfev)


FAULTS: list[tuple[Callable[[], Any], str]] = [
    (lambda: minimize(rosenbrock, POINTS[0], method="Newton"),
     "minimize has the method 'BFGS', not 'Newton'"),
    (lambda: minimize(rosenbrock, POINTS[0], raw([1]), method="BFGS"),
     "args of minimize is a tuple, got [1]"),
    (lambda: minimize(rosenbrock, POINTS[0], method="BFGS", tol=raw("small")),
     "tol of minimize is a real number, got 'small'"),
    (lambda: bfgs(rosenbrock, POINTS[0], speed=3),
     "minimize has no option 'speed'; BFGS has gtol, line_search_maxiter, maxiter, norm"),
    (lambda: bfgs(rosenbrock, POINTS),
     "x0 of minimize is a vector of at least one real number, got f32[4, 3]"),
    (lambda: bfgs(rosenbrock, POINTS[0] * 1j),
     "x0 of minimize is a vector of at least one real number, got c64[3]"),
    (lambda: bfgs(rosenbrock, POINTS[0][:0]),
     "x0 of minimize is a vector of at least one real number, got f32[0]"),
    (lambda: minimize(rosenbrock, POINTS[0], method="BFGS", options=raw(3)),
     "options of minimize is a dictionary, got 3"),
    (lambda: bfgs(lambda x: x, POINTS[0]),
     "the function of minimize returns f32[3]; it must return one real number"),
    (lambda: bfgs(rosenbrock, POINTS[0], maxiter=-1), "maxiter of minimize is at least 0, got -1"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), FAULTS)
def test_wrong_arguments(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ShardirError) as error:
        call()
    assert first_line(error) == message
