"""`live_arrays` lists the arrays that exist, the largest first."""

import gc

import shardir
import shardir.numpy as jnp


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


def test_arrays_of_one_platform() -> None:
    x = jnp.ones(3)
    assert id(x) in {id(each) for each in shardir.live_arrays("cpu")}
    assert shardir.live_arrays("gpu") == []
