"""Indivisible dimensions: errors at the boundary of programs, padding inside."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as np_
from shardir.errors import PartitionError
from shardir.frontend.config import config
from shardir.frontend.errors import IndivisibleError, SettingError

pytestmark = pytest.mark.sample(3)


def over(count: int, *axes: str | None) -> Any:
    """Return a sharding over the first devices, on a mesh with one axis."""
    mesh = sd.make_mesh((count,), ("x",), devices=sd.devices()[:count])
    return sd.NamedSharding(mesh, sd.PartitionSpec(*axes))


def total(x: Any) -> Any:
    return (x * x).sum()


def test_device_put_of_an_indivisible_dimension_is_an_error() -> None:
    with pytest.raises(IndivisibleError) as caught:
        sd.device_put(np.arange(5.0), over(4, "x"))
    assert str(caught.value).splitlines()[0] == (
        "dimension 0 of shape (5,) has size 5, which is not divisible by 4: it is sharded over the "
        "mesh axis 'x' of size 4; pad it to 8, replicate it, or pass uneven=\"pad\""
    )


@pytest.mark.parametrize(
    ("size", "count", "sizes"),
    [(5, 4, [2, 2, 1, 0]), (2, 4, [1, 1, 0, 0]), (7, 3, [3, 3, 1]), (8, 4, [2, 2, 2, 2])],
)
def test_shards_have_their_true_sizes(size: int, count: int, sizes: list[int]) -> None:
    x = sd.device_put(np.arange(size), over(count, "x"), uneven="pad")
    assert [shard.data.shape for shard in x.addressable_shards] == [(n,) for n in sizes]
    np.testing.assert_array_equal(
        np.concatenate([np.asarray(shard.data) for shard in x.addressable_shards]), np.arange(size)
    )
    np.testing.assert_array_equal(np.asarray(x), np.arange(size))


def test_indivisible_arguments_are_errors() -> None:
    with pytest.raises(IndivisibleError) as caught:
        sd.jit(total, in_shardings=over(4, "x"))(np.arange(5.0))
    assert str(caught.value).startswith(
        "argument x of total: dimension 0 of shape (5,) has size 5, which is not divisible by "
        "4: it is sharded over the mesh axis 'x' of size 4"
    )


def test_indivisible_results_are_errors() -> None:
    def double(x: Any) -> Any:
        return 2 * x

    with pytest.raises(IndivisibleError, match=r"the result of double: dimension 0 .* 'x' of"):
        sd.jit(double, out_shardings=over(4, "x"))(np.arange(5.0))
    y = sd.jit(double, out_shardings=over(4, "x"), uneven="pad")(np.arange(5.0))
    assert [shard.data.shape for shard in y.addressable_shards] == [(2,), (2,), (1,), (0,)]
    np.testing.assert_array_equal(np.asarray(y), 2 * np.arange(5.0))


@pytest.mark.parametrize("count", [3, 5, 6, 7])
@pytest.mark.parametrize(
    "function",
    [
        total,
        lambda x: x.mean(),
        lambda x: x.max(axis=0),
        lambda x: x - x.mean(axis=0),
        lambda x: np_.exp(x) / np_.exp(x).sum(axis=0),
        lambda x: x.T @ x,
        lambda x: x.var(),
        lambda x: x.argmax(axis=0),
        lambda x: np_.sort(x, axis=0),
        lambda x: np_.cumsum(x, axis=0),
        lambda x: x[1:] - x[:-1],
        lambda x: x.reshape(-1),
        lambda x: np_.concatenate([x, x]),
    ],
)
def test_results_are_those_of_one_device(function: Callable[..., Any], count: int) -> None:
    numbers = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)
    x = sd.device_put(numbers, over(count, "x"), uneven="pad")
    want = np.asarray(sd.jit(function)(numbers))
    with config(verify=True):
        got = sd.jit(function, uneven="pad")(x)
        trimmed = sd.jit(function)(x)
    np.testing.assert_allclose(np.asarray(got), want, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(np.asarray(trimmed), want, rtol=1e-5, atol=1e-6)
    assert all(size % n == 0 for size, n in zip(trimmed.shape, shard_counts(trimmed), strict=True))


def shard_counts(x: Any) -> list[int]:
    """Return the number of shards of each dimension."""
    return [len({p[d] for p in x.sharding.shard_positions(x.ndim)}) for d in range(x.ndim)]


def test_values_inside_of_a_program_are_padded_by_default() -> None:
    sharding = over(4, "x")

    @sd.jit
    def normalised(x: Any) -> Any:
        held = sd.lax.with_sharding_constraint(2 * x, sharding)
        return held / held.sum()

    text = normalised.lower(np.arange(17.0, dtype=np.float32)).compile().as_text()
    assert "f32[5]" in text
    assert "all-reduce" in text
    np.testing.assert_allclose(
        np.asarray(normalised(np.arange(17.0))), np.arange(17.0) / 136, rtol=1e-6
    )


def test_uneven_error_forbids_padding() -> None:
    def held(x: Any) -> Any:
        return sd.lax.with_sharding_constraint(2 * x, over(4, "x")).sum()

    with pytest.raises(PartitionError, match="has size 17, which is not divisible by 4"):
        sd.jit(held, uneven="error")(np.arange(17.0))
    whole = sd.jit(held, uneven="replicate").lower(np.arange(17.0, dtype=np.float32))
    assert "all-reduce" not in whole.compile().as_text()
    assert float(sd.jit(held, uneven="replicate")(np.arange(17.0))) == 272


def test_an_unconstrained_result_is_sharded_along_dividing_axes() -> None:
    x = sd.device_put(np.arange(24.0).reshape(8, 3), over(4, "x"))
    assert shard_counts(sd.jit(lambda x: x[:, :2])(x)) == [4, 1]
    y = sd.device_put(np.arange(5.0), over(4, "x"), uneven="pad")
    assert shard_counts(sd.jit(lambda y: 2 * y)(y)) == [1]
    assert shard_counts(sd.jit(lambda y: 2 * y, uneven="pad")(y)) == [4]
    with config(uneven="pad"):
        assert shard_counts(2 * y) == [4]


def test_invalid_values_of_uneven_are_errors() -> None:
    with pytest.raises(SettingError) as caught:
        sd.jit(total, uneven="padded")
    assert str(caught.value).splitlines()[0] == (
        "uneven of jit is 'padded'; it must be 'pad', 'replicate', 'error' or None"
    )


@pytest.mark.parametrize(
    ("function", "rows", "kinds"),
    [
        (lambda x: x[1:], 64, ["collective-permute"]),
        (lambda x: x[1:] - x[:-1], 64, ["collective-permute"]),
        (lambda x: 2 * x, 17, []),
        (lambda x: x.mean(), 17, ["all-reduce"]),
    ],
)
def test_bytes_that_uneven_programs_send(
    function: Callable[..., Any], rows: int, kinds: list[str]
) -> None:
    numbers = np.arange(rows * 8, dtype=np.float32).reshape(rows, 8)
    x = sd.device_put(numbers, over(4, "x"), uneven="pad")
    compiled = sd.jit(function, uneven="pad").lower(x).compile()
    assert [collective.kind for collective in compiled.collectives()] == kinds
    np.testing.assert_allclose(np.asarray(compiled(x)), function(numbers), rtol=1e-6)


def test_pmap_accepts_uneven_for_inner_shardings() -> None:
    def shifted(x: Any) -> Any:
        return sd.lax.ppermute(x, "i", [(0, 1), (1, 0)])

    x = np.arange(10.0).reshape(2, 5)
    np.testing.assert_array_equal(sd.pmap(shifted, "i", uneven="pad")(x), x[::-1])
    with pytest.raises(sd.ShardirError) as error:
        sd.pmap(shifted, "i", uneven="stretch")
    assert str(error.value).startswith("uneven of pmap of shifted is 'stretch'")
