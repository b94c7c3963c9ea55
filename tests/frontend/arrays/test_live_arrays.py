"""`live_arrays` lists the arrays that exist, the largest first."""

import gc

import shardir
import shardir.numpy as jnp
from shardir.frontend.arrays.live_arrays import LiveArrays


def ids() -> set[int]:
    return {id(each) for each in shardir.live_arrays()}


def test_arrays_are_listed_until_they_are_deleted() -> None:
    f = shardir.jit(lambda x: x + 1)
    small, large = jnp.ones(3), jnp.ones((100, 1000))
    results = [f(small) for _ in range(10)]
    assert {*map(id, (small, large, *results))} <= ids()
    sizes = [each.nbytes for each in shardir.live_arrays()]
    assert sizes == sorted(sizes, reverse=True)
    key = id(large)
    large.delete()
    assert key not in ids()
    keys = {*map(id, results)}
    results.clear()
    gc.collect()
    assert not keys & ids()


def test_the_representation_is_a_table() -> None:
    mesh = shardir.make_mesh((2,), ("x",), devices=shardir.devices("cpu")[:2])
    sharding = shardir.NamedSharding(mesh, shardir.P("x"))
    large = shardir.device_put(jnp.ones((256, 8)), sharding)
    small = shardir.device_put(jnp.arange(6.0))
    arrays = LiveArrays([large, small])
    assert (
        repr(arrays)
        == str(arrays)
        == f"""\
2 arrays, 8.0 KiB
bytes    type             sharding
8.0 KiB  float32[256, 8]  {sharding}
24 B     float32[6]       SingleDeviceSharding(device=CpuDevice(id=0), memory_kind=device)"""
    )
    assert "float32[256, 8]" in arrays._repr_html_()
    assert str(LiveArrays()) == "0 arrays, 0 B"


def test_arrays_of_one_platform() -> None:
    x = jnp.ones(3)
    assert id(x) in {id(each) for each in shardir.live_arrays("cpu")}
    assert shardir.live_arrays("gpu") == []
