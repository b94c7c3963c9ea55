"""`odeint`: exact solutions, derivatives, transformations, and wrong arguments."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardir as sd
from shardir import numpy as snp
from shardir.errors import DifferentiateError, ShardirError
from shardir.experimental.ode import odeint
from shardir.frontend.config import config
from tests.error_assertions import first_line
from tests.optional_dependencies import require

TIMES: Any = np.linspace(0, 2, 5).astype(np.float32)


def decay(y: Any, t: Any, rate: Any) -> Any:
    return -rate * y


def test_solutions_of_linear_equations() -> None:
    rates: Any = np.array([0.5, 1.0], np.float32)
    found = odeint(decay, np.ones(2, np.float32), TIMES, rates)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, np.exp(-rates * TIMES[:, None]), 1e-4)
    turned = odeint(lambda y, t: 1j * y, np.complex64(1), TIMES)
    np.testing.assert_allclose(turned, np.exp(1j * TIMES), 1e-4, 1e-5)
    with config(enable_x64=True):
        precise = odeint(decay, np.float64(1), TIMES.astype(np.float64), 1.0)
        np.testing.assert_allclose(precise, np.exp(-TIMES.astype(np.float64)), 1e-7)
    np.testing.assert_array_equal(odeint(decay, 1, TIMES[:1], 2.0), [1])


def test_times_before_an_earlier_one_have_no_solution() -> None:
    times = np.array([0, 1, 0.5, 0.7, 1, 2], np.float32)
    found = odeint(decay, np.float32(1), times, np.float32(1))
    expected = np.exp(-times) * np.array([1, 1, np.nan, np.nan, 1, 1])
    np.testing.assert_allclose(found, expected, 1e-4)


def test_times_that_are_not_reached_have_no_solution() -> None:
    undefined = odeint(lambda y, t: snp.sqrt(1.2 - t), np.float32(0), TIMES)
    expected = 2 / 3 * (1.2**1.5 - np.array([1.2, 0.7, 0.2, np.nan, np.nan]) ** 1.5)
    np.testing.assert_allclose(undefined, expected, 1e-4)
    none = odeint(lambda y, t: y * snp.nan, np.float32(1), TIMES)
    np.testing.assert_array_equal(none, [1, *[np.nan] * 4])
    np.testing.assert_array_equal(odeint(decay, 1, TIMES, 1.0, mxstep=2), [1, *[np.nan] * 4])
    times = np.array([0, np.nan, 1], np.float32)
    assert np.isnan(odeint(decay, 1, times, 1.0)).tolist()[:2] == [False, True]


def test_limits_of_steps() -> None:
    rough = odeint(lambda y, t: snp.cos(t), 0.0, TIMES, rtol=1e-2, atol=1e-2)
    assert 1e-3 < np.abs(np.asarray(rough) - np.sin(TIMES)).max() < 1e-1
    fine = odeint(lambda y, t: snp.cos(t), 0.0, TIMES, rtol=1e-2, atol=1e-2, hmax=0.1)
    np.testing.assert_allclose(fine, np.sin(TIMES), 1e-4, 1e-6)


def equation(y: Any, t: Any, rate: Any) -> Any:
    return {"a": -rate * y["a"] + snp.sin(t) * y["b"].sum(), "b": y["b"] * 0.1}


STATE: Any = {"a": np.array([1, 2], np.float32), "b": np.ones((2, 2), np.float32)}


def test_values_and_gradients_are_those_of_jax() -> None:
    require("jax")
    import jax
    from jax.experimental.ode import odeint as jax_odeint

    def theirs(y: Any, t: Any, rate: Any) -> Any:
        return {"a": -rate * y["a"] + jax.numpy.sin(t) * y["b"].sum(), "b": y["b"] * 0.1}

    def loss(solve: Any, f: Any) -> Any:
        def call(y: Any, t: Any, rate: Any) -> Any:
            found = solve(f, y, t, rate)
            return (found["a"] ** 2).sum() + (found["b"][1:] ** 3).sum()

        return call

    args = STATE, TIMES, np.float32(0.7)
    ours = sd.value_and_grad(loss(odeint, equation), (0, 1, 2))(*args)
    expected = jax.value_and_grad(loss(jax_odeint, theirs), (0, 1, 2))(*args)
    for x, y in zip(sd.tree.leaves(ours), jax.tree.leaves(expected), strict=True):
        # The gradient with respect to the first time is a small sum of terms of up to 33.
        np.testing.assert_allclose(x, y, 1e-4, 1e-3)


def test_gradients_of_captured_values_and_second_derivatives() -> None:
    def last(rate: Any) -> Any:
        return odeint(lambda y, t: -rate * y, 1.0, TIMES)[-1]

    np.testing.assert_allclose(sd.grad(last)(2.0), -2 * np.exp(-4), 1e-4)
    np.testing.assert_allclose(sd.grad(sd.grad(last))(2.0), 4 * np.exp(-4), 1e-4)
    rates = np.array([0.5, 2.0], np.float32)
    np.testing.assert_allclose(sd.jit(sd.vmap(sd.grad(last)))(rates), -2 * np.exp(-2 * rates), 1e-4)


def test_states_may_be_sharded() -> None:
    with sd.cpu_devices(8):
        sharding = sd.NamedSharding(sd.make_mesh((8,), ("x",)), sd.P("x"))
        y = sd.device_put(np.ones((8, 2), np.float32), sharding)
        found = sd.jit(lambda y: odeint(decay, y, TIMES, 1.0))(y)
        expected = np.exp(-TIMES)[:, None, None] * np.ones((8, 2))
        np.testing.assert_allclose(found, expected, 1e-4)


FAULTS: list[tuple[Callable[[], Any], str]] = [
    (lambda: odeint(decay, 1.0, np.arange(3), 1.0),
     "t of odeint is a vector of floats with at least one element, got i32[3]"),
    (lambda: odeint(decay, 1.0, 2.0, 1.0),
     "t of odeint is a vector of floats with at least one element, got f32[]"),
    (lambda: odeint(decay, 1.0, TIMES, "fast"),
     "odeint takes arrays, got 'fast' of type str; let the function capture it, for example in a "
     "lambda"),
    (lambda: odeint(lambda y, t: snp.ones(2), 1.0, TIMES),
     "the function of odeint returns shape (2,) for a state of shape ()"),
    (lambda: odeint(lambda y, t: (y, y), 1.0, TIMES),
     "the function of odeint returns other containers than those of y0"),
    (lambda: odeint(decay, 1.0, TIMES, 1.0, rtol="small"),  # type: ignore[arg-type]
     "rtol of odeint is a real number, got 'small'"),
    (lambda: odeint(decay, 1.0, TIMES, 1.0, mxstep=-1), "mxstep of odeint is at least 0, got -1"),
    (lambda: odeint(decay, 1.0, TIMES, 1.0, atol=np.nan), "atol of odeint is at least 0, got nan"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), FAULTS)
def test_wrong_arguments(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ShardirError) as error:
        call()
    assert first_line(error) == message


def test_there_is_no_forward_mode() -> None:
    with pytest.raises(DifferentiateError):
        sd.jvp(lambda rate: odeint(decay, 1.0, TIMES, rate), (1.0,), (1.0,))
