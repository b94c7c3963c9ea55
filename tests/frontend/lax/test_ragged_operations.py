"""Ragged exchanges and contractions, against NumPy and JAX."""

from functools import partial
from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir import lax
from shardir.errors import OperationTypeError
from shardir.frontend.errors import ShapeError
from shardir.sharding import PartitionSpec as P
from tests.optional_dependencies import require

DEVICES, ROWS, CAPACITY = 4, 12, 20
RANDOM = np.random.default_rng(3)


def exchange_by_numpy(x: Any, out: Any, starts: Any, sizes: Any, targets: Any) -> Any:
    result = out.copy()
    for sender in range(DEVICES):
        for receiver in range(DEVICES):
            first, size, to = (each[sender, receiver] for each in (starts, sizes, targets))
            result[receiver, to : to + size] = x[sender, first : first + size]
    return result


def arguments() -> tuple[Any, ...]:
    sizes = RANDOM.integers(0, 4, (DEVICES, DEVICES)).astype(np.int32)
    starts = np.cumsum(sizes, 1, dtype=np.int32) - sizes
    targets = np.cumsum(sizes, 0, dtype=np.int32) - sizes + 1
    x = RANDOM.standard_normal((DEVICES, ROWS, 3)).astype("f")
    out = np.full((DEVICES, CAPACITY, 3), -1, "f")
    return x, out, starts, sizes, targets


def exchange(x: Any, out: Any, starts: Any, sizes: Any, targets: Any) -> Any:
    mesh = sd.make_mesh((DEVICES,), ("x",))

    @partial(sd.shard_map, mesh=mesh, in_specs=P("x"), out_specs=P("x"))
    def every(*args: Any) -> Any:
        x, out, starts, sizes, targets, received = (each[0] for each in args)
        made = lax.ragged_all_to_all(x, out, starts, sizes, targets, received, axis_name="x")
        return made[None]

    return every(x, out, starts, sizes, targets, sizes.T)


def test_ragged_slices_reach_their_receivers() -> None:
    args = arguments()
    np.testing.assert_array_equal(sd.jit(exchange)(*args), exchange_by_numpy(*args))


def test_gradients_of_a_ragged_exchange_return_to_the_senders() -> None:
    x, out, *rest = arguments()
    weights = RANDOM.standard_normal(out.shape).astype("f")
    gradient = sd.jit(sd.grad(lambda x: (exchange(x, out, *rest) * weights).sum()))(x)
    starts, sizes, targets = rest
    expected = np.zeros_like(x)
    for sender in range(DEVICES):
        for receiver in range(DEVICES):
            first, size, to = (each[sender, receiver] for each in (starts, sizes, targets))
            expected[sender, first : first + size] += weights[receiver, to : to + size]
    np.testing.assert_allclose(gradient, expected, rtol=1e-6)


def test_shapes_of_a_ragged_exchange_are_checked() -> None:
    ones, two = np.ones((3, 2), "f"), np.ones(2, np.int32)

    def call(*args: Any) -> Any:
        return sd.jit(partial(lax.ragged_all_to_all, axis_name="x"))(*args)

    with pytest.raises(ShapeError, match="whose shapes differ in the first dimension at most"):
        call(ones, np.ones((3, 1), "f"), two, two, two, two)
    with pytest.raises(ShapeError, match="are vectors of one length, got"):
        call(ones, ones, two, two, two, np.ones(3, np.int32))


@pytest.mark.parametrize("kind", ["rows", "contracted", "contracted with a batch"])
def test_ragged_contractions_are_those_of_jax(kind: str) -> None:
    require("jax")
    from jax import lax as jax_lax

    sizes = np.array([2, 0, 3], np.int32)
    if kind == "rows":
        x, y = RANDOM.standard_normal((6, 4)), RANDOM.standard_normal((3, 4, 5))
        numbers: Any = ((((1,), (1,)), ((), ())), (0,), (0,))
    elif kind == "contracted":
        x, y = RANDOM.standard_normal((4, 6)), RANDOM.standard_normal((6, 5))
        numbers = ((((1,), (0,)), ((), ())), (1,), ())
    else:
        x, y = RANDOM.standard_normal((2, 4, 6)), RANDOM.standard_normal((2, 6, 5))
        numbers = ((((2,), (1,)), ((0,), (0,))), (2,), ())
        sizes = np.array([2, 0, 3], np.int32)
    x, y = x.astype("f"), y.astype("f")
    got = lax.ragged_dot_general(x, y, sizes, lax.RaggedDotDimensionNumbers(*numbers))
    theirs = jax_lax.RaggedDotDimensionNumbers(*numbers)
    if kind == "contracted with a batch":
        expected = np.stack(
            [
                np.einsum("bmk,bkn->bmn", x[..., first : first + n], y[:, first : first + n])
                for first, n in ((0, 2), (2, 0), (2, 3))
            ]
        )
    else:
        expected = np.asarray(jax_lax.ragged_dot_general(x, y, sizes, theirs))
    assert got.dtype == expected.dtype
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def test_unsupported_ragged_contractions_are_refused() -> None:
    numbers = lax.RaggedDotDimensionNumbers((((1,), (1,)), ((), ())), (0,), ())
    with pytest.raises(OperationTypeError, match="has one group dimension if the ragged dimension"):
        lax.ragged_dot_general(snp.ones((4, 3)), snp.ones((2, 3, 5)), np.ones(2, int), numbers)
    numbers = lax.RaggedDotDimensionNumbers((((2,), (1,)), ((0,), (0,))), (0,), ())
    with pytest.raises(OperationTypeError, match="one ragged dimension, which is not a batch"):
        lax.ragged_dot_general(snp.ones((2, 4, 3)), snp.ones((2, 3, 5)), np.ones(2, int), numbers)
