"""Elements of traced values in functions that are differentiated outside of `jit`."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir import lax
from shardir.frontend.dispatch import temporary_programs
from shardir.frontend.errors import (
    LeakedTracerError,
    TracedArrayError,
    TracedIntegerError,
    TracedMaskError,
    TracedTruthError,
    TracedValueError,
)
from shardir.sharding import NamedSharding, PartitionSpec as P


def absolute(x: Any) -> Any:
    return x if x > 0 else -x


def root(x: Any) -> Any:
    """Return a square root by Newton's method, with a loop of Python."""
    y = x
    while abs(y * y - x) > 1e-6:
        y = (y + x / y) / 2
    return y


def test_derivatives_of_functions_with_branches_and_loops_of_python() -> None:
    assert sd.grad(absolute)(-2.0) == -1
    slope = 1 / (2 * 2**0.5)
    assert sd.value_and_grad(root)(2.0) == (pytest.approx(2**0.5), pytest.approx(slope))
    assert sd.jvp(root, (2.0,), (1.0,))[1] == pytest.approx(slope)
    assert sd.vjp(root, 2.0)[1](1.0)[0] == pytest.approx(slope)
    assert sd.linearize(root, 2.0)[1](1.0) == pytest.approx(slope)
    assert sd.grad(sd.grad(root))(2.0) == pytest.approx(-(2**-1.5) / 4)
    jacobian = sd.jacfwd(lambda x: absolute(x.sum()) * x)(snp.array([1.0, -3.0]))
    np.testing.assert_array_equal(jacobian, [[1, -1], [3, 5]])
    hessian = sd.hessian(lambda x: absolute(x.sum() ** 3))(snp.array([1.0, -3.0]))
    np.testing.assert_array_equal(hessian, [[12, 12], [12, 12]])


def test_each_iteration_of_a_loop_runs_the_same_program() -> None:
    def power(x: Any) -> Any:
        y = x
        while y < 1000:
            y = y * 1.5 + x * 0.25
        return y

    before = len(temporary_programs._temporary_programs)
    sd.grad(power)(1.0)
    assert len(temporary_programs._temporary_programs) - before <= 4


def test_elements_select_positions_counts_and_keys() -> None:
    np.testing.assert_array_equal(
        sd.grad(lambda x: (x[x > 0] ** 2).sum())(snp.array([1.0, -2.0, 3.0])), [2, 0, 6]
    )
    count = snp.arange(4)
    assert sd.grad(lambda x: sum(x * i for i in range(count[3])))(1.0) == 3
    assert sd.grad(lambda x: sum(x * i for i in range(int(x))))(3.5) == 3
    # A loop with a known number of iterations has a derivative in reverse.
    assert sd.grad(lambda x: lax.fori_loop(0, count[3], lambda i, y: y * x, 1.0))(2.0) == 12
    key = sd.random.key(0)
    assert sd.grad(lambda x: x if sd.random.uniform(key) < 1 else 2 * x)(1.0) == 1


def test_values_without_a_derivative_become_numbers_and_arrays_of_numpy() -> None:
    scale = snp.arange(3.0)
    assert sd.grad(lambda x: x * float(scale.sum()))(1.0) == 3
    assert sd.grad(lambda x: x * np.asarray(scale * 2).sum())(1.0) == 6
    assert sd.grad(lambda x: x * scale.tolist()[2])(1.0) == 2
    assert sd.grad(lambda x: x * scale[1].item())(1.0) == 1
    assert sd.grad(lambda x: x**2 if (x > 0).item() else x)(2.0) == 4
    assert sd.grad(lambda x: x * float(lax.stop_gradient(x)))(3.0) == 3
    assert sd.vmap(lambda x: x + (1 if scale.sum() > 2 else 2))(scale)[0] == 1


@pytest.mark.parametrize("use", [lambda x: float(x), lambda x: complex(x), lambda x: x.item()])
def test_a_number_that_would_lose_its_derivative_is_refused(use: Callable[[Any], Any]) -> None:
    with pytest.raises(TracedValueError) as caught:
        sd.grad(lambda x: x * abs(use(x * 2)))(3.0)
    assert str(caught.value).partition("\n")[0].partition("; ")[2] == (
        "it would lose its derivative; keep computing with arrays, or apply lax.stop_gradient first"
    )


def test_the_argument_of_an_inner_derivative_has_one() -> None:
    scale = snp.float32(3)
    with pytest.raises(TracedValueError, match="it would lose its derivative"):
        sd.grad(lambda x: x * sd.grad(lambda y: y * float(y))(scale))(1.0)


@pytest.mark.parametrize(
    "staged",
    [
        sd.jit(absolute),
        sd.checkpoint(absolute),
        lambda x: lax.cond(x > 0, absolute, absolute, x),
        lambda x: lax.scan(lambda carry, _: (absolute(carry), None), x, None, length=2)[0],
        lambda x: sd.vmap(absolute)(snp.ones(3) * x).sum(),
    ],
)
def test_functions_that_run_later_or_more_than_once_know_no_elements(
    staged: Callable[[Any], Any],
) -> None:
    with pytest.raises(TracedTruthError, match="has no truth value"):
        sd.grad(staged)(3.0)


def test_elements_that_are_not_known_are_refused() -> None:
    with pytest.raises(TracedTruthError, match="has no truth value while absolute is traced"):
        sd.jit(sd.grad(absolute))(3.0)
    with pytest.raises(TracedTruthError, match="has no truth value while absolute is traced"):
        sd.vmap(absolute)(snp.ones(3))
    with pytest.raises(TracedMaskError):
        sd.vmap(lambda x: x[x > 0])(snp.ones((3, 2)))
    with pytest.raises(TracedIntegerError):
        sd.grad(lambda x: x * len(range(x)))(3.0)
    with pytest.raises(TracedArrayError):
        sd.grad(lambda x: np.sin(x))(3.0)

    @sd.custom_vjp
    def identity(x: Any) -> Any:
        return x

    identity.defvjp(lambda x: (x, x), lambda saved, y: (y if saved > 0 else -y,))
    with pytest.raises(TracedTruthError, match="while the backward rule of identity is traced"):
        sd.grad(identity)(3.0)

    def read(x: Any) -> Any:
        return x if sd.io_callback(lambda: np.float32(1), np.float32(0)) > 0 else -x

    # The callback must run once only.
    with pytest.raises(TracedTruthError):
        sd.grad(read)(3.0)


def test_elements_are_not_known_after_the_trace() -> None:
    kept = []

    def keep(x: Any) -> Any:
        kept.append(x > 0)
        return x

    sd.grad(keep)(1.0)
    with pytest.raises(LeakedTracerError):
        bool(kept[0])


def test_custom_rules_know_the_elements_of_the_arguments() -> None:
    @sd.custom_jvp
    def double(x: Any) -> Any:
        return 2 * x if x > 0 else x

    double.defjvp(lambda primals, tangents: (double(*primals), 5 * tangents[0] * int(primals[0])))
    assert sd.grad(double)(2.0) == 10

    @sd.custom_vjp
    def triple(x: Any) -> Any:
        return 3 * x if x > 0 else x

    triple.defvjp(lambda x: (triple(x), 7.0 if x > 1 else 8.0), lambda saved, y: (saved * y,))
    assert (sd.grad(triple)(2.0), sd.grad(triple)(0.5)) == (7, 8)


def test_elements_of_sharded_values() -> None:
    mesh = sd.make_mesh((4,), ("x",))
    x = sd.device_put(np.arange(8, dtype=np.float32), NamedSharding(mesh, P("x")))

    def loss(x: Any) -> Any:
        y = lax.with_sharding_constraint(x * 2, NamedSharding(mesh, P()))
        return (y**2).sum() if y.sum() > 3 else y.sum()

    np.testing.assert_array_equal(sd.grad(loss)(x), 8 * np.arange(8))
