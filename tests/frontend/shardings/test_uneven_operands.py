"""Functions whose results have the sharding of an operand accept uneven operands."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir import lax, optim
from shardir.frontend.errors import IndivisibleError
from shardir.sharding import NamedSharding, PartitionSpec as P

V = np.arange(6, dtype=np.float32)


def sharding(*spec: Any) -> NamedSharding:
    return NamedSharding(sd.make_mesh((4,), ("x",), devices=sd.devices()[:4]), P(*spec))


def uneven(numbers: Any = V) -> Any:
    return sd.device_put(numbers, sharding("x"), uneven="pad")


@pytest.mark.parametrize(
    ("function", "want"),
    [
        (snp.zeros_like, 0 * V),
        (snp.ones_like, 0 * V + 1),
        (snp.empty_like, 0 * V),
        (lambda x: snp.full_like(x, 3), 0 * V + 3),
        (lambda x: snp.full_like(x, snp.arange(6.0)), V),
        (lambda x: snp.full_like(x, 2, "bfloat16"), 0 * V + 2),
        (lambda x: snp.zeros_like(sd.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding)),
         0 * V),
        (lambda x: sd.device_put(x, sharding("x")), V),
        (lambda x: sd.device_put(x, sharding(("x",))), V),
        (lambda x: lax.with_sharding_constraint(x, sharding(("x",))), V),
    ],
)  # fmt: skip
def test_results_have_the_sharding_of_the_operand(function: Any, want: Any) -> None:
    x = uneven()
    for _ in range(3):
        made = function(x)
        np.testing.assert_array_equal(np.asarray(made, np.float32), want)
        assert made.committed
        assert made.sharding.is_equivalent_to(x.sharding, 1)
        assert [shard.data.shape for shard in made.addressable_shards] == [(2,), (2,), (2,), (0,)]


@pytest.mark.parametrize("name", ["sgd", "momentum", "adam"])
def test_optimizers_accept_uneven_parameters(name: str) -> None:
    rule = getattr(optim, name)(0.5)
    gradient = np.ones_like(V)
    params, even = {"w": uneven()}, {"w": snp.asarray(V)}
    state, plain = rule.init(params), rule.init(even)
    for _ in range(2):
        updates, state = rule.update({"w": uneven(gradient)}, state, params)
        others, plain = rule.update({"w": snp.asarray(gradient)}, plain, even)
        params, even = optim.apply_updates(params, updates), optim.apply_updates(even, others)
    np.testing.assert_allclose(np.asarray(params["w"]), np.asarray(even["w"]), rtol=1e-6)


def test_full_like_of_lax_accepts_uneven_operands() -> None:
    np.testing.assert_array_equal(np.asarray(lax.full_like(uneven(), 3)), 0 * V + 3)


def test_an_uneven_sharding_of_the_user_is_an_error() -> None:
    x = uneven()
    calls: list[Callable[[], Any]] = [
        lambda: snp.zeros_like(x, device=x.sharding),
        lambda: snp.zeros(6, device=x.sharding),
        lambda: sd.device_put(V, x.sharding),
    ]
    for call in calls:
        with pytest.raises(IndivisibleError, match=r"has size 6, which is not divisible by 4"):
            call()
    # A result of another shape does not have the sharding of the operand.
    assert not snp.zeros_like(x, shape=(5,)).committed
