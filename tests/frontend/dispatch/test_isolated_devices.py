"""With `isolated`, devices share no memory and compute the same results."""

from typing import Any

import numpy as np

import shardir as sd
import shardir.numpy as snp
from shardir.sharding import NamedSharding, PartitionSpec as P

MESH = sd.make_mesh((4, 2), ("data", "model"))


def normalised(x: Any, w: Any) -> tuple[Any, Any]:
    y = x @ w
    return y - snp.mean(y, axis=0), snp.sum(y)


def test_isolated_devices_compute_the_same() -> None:
    rng = np.random.default_rng(0)
    x = sd.device_put(rng.standard_normal((8, 6)), NamedSharding(MESH, P("data", "model")))
    w = sd.device_put(rng.standard_normal((6, 4)), NamedSharding(MESH, P("model")))
    together = sd.jit(normalised)(x, w)
    with sd.config(isolated=True):
        apart = sd.jit(normalised)(x, w)
    for one, other in zip(together, apart, strict=True):
        assert one.sharding == other.sharding
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-5, atol=1e-6)


def test_isolated_devices_have_separate_copies() -> None:
    with sd.config(isolated=True):
        y = sd.jit(lambda x: x + 1, out_shardings=NamedSharding(MESH, P()))(np.ones(8))
    assert len({id(part) for part in y.device_shards}) == 8
    with sd.config(isolated=False):
        z = sd.jit(lambda x: x + 1, out_shardings=NamedSharding(MESH, P()))(np.ones(8))
    assert len({id(part) for part in z.device_shards}) == 1


def test_an_effect_of_isolated_devices_executes_once() -> None:
    seen: list[float] = []

    def noted(x: Any) -> Any:
        sd.debug.callback(lambda value: seen.append(float(value)), snp.sum(x))
        return x

    with sd.config(isolated=True):
        sd.jit(noted, in_shardings=NamedSharding(MESH, P()))(np.ones(8))
    assert seen == [8.0]


def test_isolated_devices_create_large_arrays_without_operands() -> None:
    """Each device runs on its own thread, although no operand states the number of devices."""
    with sd.config(isolated=True):
        made = sd.jit(lambda: snp.arange(1 << 20), out_shardings=NamedSharding(MESH, P()))()
    assert len(made.device_shards) == 8
    np.testing.assert_array_equal(np.asarray(made), np.arange(1 << 20))
