"""Scatter and gather helpers, and other small functions of `lax`."""

from typing import Any

import numpy as np
import pytest

import shardir
from shardir.errors import OperationTypeError
from shardir.frontend.errors import ControlFlowError
from shardir.frontend.lax import api as lax
from shardir.frontend.numpy import api as snp

X = np.array([0.5, -1.25, 3.0, 2.0], np.float32)
ONE = lax.ScatterDimensionNumbers((), (0,), (0,))


def both(fun: Any, *args: Any) -> Any:
    """Return the result of an eager call, and check that a compiled call has the same result."""
    made = fun(*args)
    for one, other in zip(
        shardir.tree.leaves(made), shardir.tree.leaves(shardir.jit(fun)(*args)), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-6)
    return made


def test_scatter_apply_applies_once_per_index() -> None:
    at = np.array([[1], [3], [1], [9]], np.int32)

    def apply(x: Any, unique: bool) -> Any:
        return lax.scatter_apply(
            x, at, lambda v: v * 2 + 1, ONE, update_shape=(4,), unique_indices=unique
        )

    made = both(lambda x: apply(x, False), X)
    np.testing.assert_allclose(made, [0.5, (-1.25 * 2 + 1) * 2 + 1, 3.0, 5.0])
    np.testing.assert_allclose(both(lambda x: apply(x, True), X), [0.5, -1.5, 3.0, 5.0])
    rows = snp.stack([X, 2 * X])
    batched = shardir.vmap(lambda x: apply(x, False))(rows)
    np.testing.assert_allclose(batched, [apply(X, False), apply(2 * X, False)])
    assert lax.scatter_apply(snp.zeros(0), at[:0], snp.sin, ONE, update_shape=(0,)).shape == (0,)


def test_updates_are_subtracted() -> None:
    at = np.array([[1], [1]], np.int32)
    made = both(lambda x: lax.scatter_sub(x, at, snp.array([1.0, 2.0]), ONE), X)
    np.testing.assert_allclose(made, [0.5, -4.25, 3.0, 2.0])


def test_index_take() -> None:
    x = np.arange(24.0, dtype=np.float32).reshape(2, 3, 4)
    first, second = np.array([0, 1, -1]), np.array([3, 0, 2])
    made = both(lambda x: lax.index_take(x, (first, second), (0, 2)), x)
    np.testing.assert_array_equal(made, [x[0, :, 3], x[1, :, 0], x[-1, :, 2]])
    with pytest.raises(OperationTypeError) as caught:
        lax.index_take(x, (first,), (0, 2))
    assert str(caught.value).splitlines()[0] == (
        "index_take takes a vector of indices for each of axes [0, 2], got (3,)"
    )


def test_special_functions() -> None:
    special = pytest.importorskip("scipy.special")
    a, x = np.array([0.5, 2.0, 3.5], np.float32), np.array([0.25, 1.5, 4.0], np.float32)
    for made, expected in [
        (lax.igamma(a, x), special.gammainc(a, x)),
        (lax.igammac(a, x), special.gammaincc(a, x)),
        (lax.betainc(a, a, x / 5), special.betainc(a, a, x / 5)),
        (lax.zeta(a + 1, x), special.zeta(a + 1, x)),
        (lax.polygamma(np.float32(1), x), special.polygamma(1, x)),
        (lax.bessel_i0e(x), special.i0e(x)),
        (lax.bessel_i1e(x), special.i1e(x)),
    ]:
        np.testing.assert_allclose(made, expected, rtol=2e-5)
    np.testing.assert_allclose(both(lax.reciprocal, X), 1 / X, rtol=1e-6)


def test_shape_and_dtype_functions() -> None:
    assert lax.dtype(X) == np.float32
    assert lax.dtype(1) == np.int32
    assert lax.empty((2, 3), "int32").shape == (2, 3)
    assert both(lambda x: lax.broadcast_to_rank(x, 3), X).shape == (1, 1, 4)
    np.testing.assert_array_equal(both(lambda x: lax.broadcast_like(x, np.ones((2, 4))), X), [X, X])
    assert lax.shape_as_value((2, 3)).tolist() == [2, 3]
    with pytest.raises(OperationTypeError) as caught:
        lax.broadcast_to_rank(np.ones((2, 3)), 1)
    assert str(caught.value).splitlines()[0] == (
        "broadcast_to_rank adds dimensions, and shape (2, 3) has more than 1"
    )


def test_approximate_top_k_is_exact() -> None:
    values, places = both(lambda x: lax.approx_max_k(x, 2), X)
    assert (np.asarray(values).tolist(), np.asarray(places).tolist()) == ([3.0, 2.0], [2, 3])
    # The container is a list, as in JAX.
    assert [type(best(X, 2)) for best in (lax.approx_max_k, lax.approx_min_k)] == [list, list]
    values, places = both(lambda x: lax.approx_min_k(x, 2), X)
    assert (np.asarray(values).tolist(), np.asarray(places).tolist()) == ([-1.25, 0.5], [1, 0])


@pytest.mark.parametrize("best", [lax.approx_max_k, lax.approx_min_k], ids=lambda f: f.__name__)
def test_approximate_top_k_requires_floats(best: Any) -> None:
    with pytest.raises(OperationTypeError) as caught:
        best(np.array([3, 0, 1], np.uint32), 2)
    assert str(caught.value).splitlines()[0] == (
        f"{best.__name__} takes floats, got u32; lax.top_k takes integers, too"
    )


def test_reduce_xor() -> None:
    whole = np.array([[5, 3, 7], [1, 2, 8]], np.int32)
    made = both(lambda x: lax.reduce_xor(x, (0,)), whole)
    np.testing.assert_array_equal(made, np.bitwise_xor.reduce(whole, 0))
    odd = both(lambda x: lax.reduce_xor(x, (1,)), whole % 2 == 1)
    assert np.asarray(odd).tolist() == [True, True]


def test_stateful_random_numbers_differ_between_calls() -> None:
    draw = shardir.jit(lambda: lax.rng_uniform(2.0, 5.0, (1000,)))
    first, second = np.asarray(draw()), np.asarray(draw())
    assert first.dtype == np.float32
    assert (first != second).any()
    assert ((first >= 2) & (first < 5)).all()
    assert 3.2 < first.mean() < 3.8
    whole = np.asarray(lax.rng_uniform(np.int32(3), np.int32(6), (200,)))
    assert set(whole.tolist()) == {3, 4, 5}
    with pytest.raises(OperationTypeError) as caught:
        lax.rng_uniform(0, 1.0, (2,))
    assert str(caught.value).splitlines()[0] == (
        "rng_uniform takes two numbers of one type, got i32 of shape () and f32 of shape ()"
    )
    with pytest.raises(OperationTypeError) as caught:
        lax.rng_uniform(5, 5, (2,))
    assert str(caught.value).splitlines()[0] == (
        "rng_uniform draws from a up to b, got a = 5 and b = 5; make b larger"
    )


def test_ragged_dot() -> None:
    rows = np.arange(10.0, dtype=np.float32).reshape(5, 2)
    matrices = np.arange(12.0, dtype=np.float32).reshape(2, 2, 3)
    sizes = np.array([3, 1], np.int32)
    made = both(lax.ragged_dot, rows, matrices, sizes)
    expected = np.concatenate([rows[:3] @ matrices[0], rows[3:4] @ matrices[1], np.zeros((1, 3))])
    np.testing.assert_allclose(made, expected)
    slope = shardir.grad(lambda m: lax.ragged_dot(rows, m, sizes).sum())(matrices)
    np.testing.assert_allclose(slope[1], np.repeat(rows[3][:, None], 3, 1))
    with pytest.raises(OperationTypeError) as caught:
        lax.ragged_dot(rows, matrices[0], sizes)
    assert str(caught.value).splitlines()[0] == (
        "ragged_dot takes shapes (rows, inner), (groups, inner, columns) and (groups,), "
        "got (5, 2), (2, 3) and (2,)"
    )


def test_products_with_a_preferred_dtype() -> None:
    half, whole = np.array([3.0, 200.0], np.float16), np.array([2, 300], np.int32)
    made = both(lambda x, y: lax.mul(x, y, out_dtype="float32"), half, whole)
    assert made.dtype == np.float32
    np.testing.assert_array_equal(made, [6.0, 60000.0])
    with pytest.raises(OperationTypeError):
        lax.mul(half, whole)


def test_functions_for_platforms_and_with_names() -> None:
    assert lax.platform_dependent(3, cpu=lambda x: x + 1, default=lambda x: x) == 4
    assert lax.platform_dependent(3, cuda=lambda x: x + 1, default=lambda x: x) == 3
    with pytest.raises(ControlFlowError) as caught:
        lax.platform_dependent(3, cuda=lambda x: x + 1)
    assert str(caught.value).splitlines()[0] == (
        "platform_dependent has functions for cuda, and the platform is cpu; give it a default"
    )
    named = lax.composite(lambda x, *, power: x**power, "my.power")
    np.testing.assert_allclose(named(snp.asarray(X), power=2), X**2)
