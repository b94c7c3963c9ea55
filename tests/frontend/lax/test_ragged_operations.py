"""Ragged exchanges and contractions, against NumPy and JAX."""

from collections.abc import Callable
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
from tests.error_assertions import assert_raises_exactly
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


def drawn(*shape: int) -> Any:
    return RANDOM.standard_normal(shape).astype("f")


def drawn_sizes(*shape: int) -> Any:
    return RANDOM.integers(0, 4, shape).astype(np.int32)


CONTRACTIONS: dict[str, tuple[Any, Any, Any, Any]] = {
    "rows": (((((1,), (1,)), ((), ())), (0,), (0,)), drawn(6, 4), drawn(3, 4, 5), (3,)),
    "lists": ((([[1], [1]], [[], []]), [0], [0]), drawn(6, 4), drawn(3, 4, 5), (3,)),
    "rows with a batch": (
        ((((3,), (2,)), ((1,), (1,))), (2,), (0,)),
        drawn(2, 3, 9, 4),
        drawn(4, 3, 4, 5),
        (3, 2, 4),
    ),
    "contracted": (((((1,), (0,)), ((), ())), (1,), ()), drawn(4, 6), drawn(6, 5), (3,)),
    "contracted with a batch": (
        ((((2,), (1,)), ((0,), (0,))), (2,), ()),
        drawn(2, 4, 6),
        drawn(2, 6, 5),
        (3,),
    ),
    "contracted with sizes of each batch": (
        ((((2,), (1,)), ((0,), (0,))), (2,), ()),
        drawn(2, 4, 6),
        drawn(2, 6, 5),
        (2, 3),
    ),
    "second contracted dimension": (
        ((((0, 2), (1, 0)), ((3,), (2,))), (2,), ()),
        drawn(2, 6, 9, 3),
        drawn(9, 2, 3, 5),
        (3, 2, 4),
    ),
    "batch": (((((2,), (1,)), ((0,), (0,))), (0,), ()), drawn(6, 2, 4), drawn(6, 4, 5), (3,)),
}


@pytest.mark.parametrize("kind", CONTRACTIONS)
def test_ragged_contractions_are_those_of_jax(kind: str) -> None:
    require("jax")
    from jax import lax as jax_lax

    numbers, x, y, shape = CONTRACTIONS[kind]
    sizes = drawn_sizes(*shape)
    ours, theirs = lax.RaggedDotDimensionNumbers(*numbers), jax_lax.RaggedDotDimensionNumbers
    expected = np.asarray(jax_lax.ragged_dot_general(x, y, sizes, theirs(*numbers)))
    for call in (lax.ragged_dot_general, sd.jit(lax.ragged_dot_general, static_argnums=3)):
        got = call(x, y, sizes, ours)
        assert got.dtype == expected.dtype
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", CONTRACTIONS)
def test_negative_dimensions_count_from_the_end(kind: str) -> None:
    """JAX refuses them."""
    (dimensions, *numbers), x, y, shape = CONTRACTIONS[kind]
    sizes = drawn_sizes(*shape)
    negative: Any = [
        [[dim - each.ndim for dim in dims] for dims, each in zip(pair, (x, y), strict=True)]
        for pair in dimensions
    ]
    got, expected = (
        lax.ragged_dot_general(x, y, sizes, lax.RaggedDotDimensionNumbers(each, *numbers))
        for each in (negative, dimensions)
    )
    np.testing.assert_array_equal(got, expected)


def test_infinite_elements_do_not_reach_the_products_of_other_groups() -> None:
    x, y = drawn(4, 6), drawn(6, 5)
    y[5] = np.inf
    numbers = lax.RaggedDotDimensionNumbers((((1,), (0,)), ((), ())), (1,), ())
    got = np.asarray(lax.ragged_dot_general(x, y, np.array([4, 2], np.int32), numbers))
    np.testing.assert_allclose(got[0], x[:, :4] @ y[:4], 1e-5, 1e-6)
    assert not np.isfinite(got[1]).any()


def test_wrong_ragged_contractions_are_refused() -> None:
    def call(sizes: Any, *numbers: Any, offset: Any = None) -> Any:
        x, y = snp.ones((2, 4, 3)), snp.ones((2, 3, 5))
        numbers_of = lax.RaggedDotDimensionNumbers(*numbers)
        return lax.ragged_dot_general(x, y, sizes, numbers_of, group_offset=offset)

    batched, two = (((2,), (1,)), ((0,), (0,))), np.ones(2, np.int32)
    group = (
        "rhs of ragged_dot_general has one group dimension if the ragged dimension is neither "
        "contracted nor a batch dimension, and none otherwise; got "
    )
    ragged = (
        "ragged_dot_general takes one ragged dimension of lhs, from 0 to 2, and no group_offset"
    )
    shape = "group_sizes of ragged_dot_general has the shape (groups,)"
    batches = f"{shape} or (2, groups)"
    cases: list[tuple[Callable[[], Any], str]] = [
        (lambda: call(two, batched, (1,), ()), f"{group}()"),
        (lambda: call(two, batched, (0,), (0,)), f"{group}(0,)"),
        (lambda: call(two, batched, (2,), (0,)), f"{group}(0,)"),
        (lambda: call(two, batched, (3,), ()), f"{ragged}; got (3,)"),
        (lambda: call(two, batched, (1, 2), ()), f"{ragged}; got (1, 2)"),
        (lambda: call(two, batched, (2,), (), offset=1), f"{ragged}; got (2,) and an offset"),
        (lambda: call(two[0], batched, (2,), ()), f"{batches}, got ()"),
        (lambda: call(two.reshape(2, 1, 1), batched, (2,), ()), f"{batches}, got (2, 1, 1)"),
        (lambda: call(two[:, None], batched, (0,), ()), f"{shape}, got (2, 1)"),
        (lambda: call(two[0], batched, (0,), ()), f"{shape}, got ()"),
    ]  # fmt: skip
    for refused, text in cases:
        assert_raises_exactly(refused, OperationTypeError, text)
