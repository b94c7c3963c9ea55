"""`pmap`: one slice per device, collectives between them, as in JAX."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import shardir.numpy as snp
from shardir import (
    NamedSharding,
    PartitionSpec as P,
    cpu_devices,
    device_put,
    device_put_replicated,
    device_put_sharded,
    devices,
    dtypes,
    grad,
    jit,
    jvp,
    lax,
    make_mesh,
    pmap,
    vjp,
    vmap,
)
from shardir.frontend.errors import AxisError, BatchError

N = 8
X: npt.NDArray[np.float32] = np.random.default_rng(0).standard_normal((N, 3)).astype(np.float32)


@pytest.fixture(autouse=True)
def _eight() -> Iterator[None]:
    with cpu_devices(N):
        yield


def agree(made: Any, expected: Any, tolerance: float = 1e-5) -> None:
    np.testing.assert_allclose(np.asarray(made), np.asarray(expected), tolerance, tolerance)


def test_each_slice_is_on_a_separate_device() -> None:
    doubled = pmap(lambda x: x * 2)(X)
    agree(doubled, X * 2)
    assert [shard.device for shard in doubled.addressable_shards] == devices()
    assert [buffer.device() for buffer in doubled.device_buffers] == devices()
    assert {shard.data.shape for shard in doubled.addressable_shards} == {(1, 3)}
    assert doubled.sharding.spec == P("pmap")


def test_fewer_slices_than_devices_and_selected_devices() -> None:
    assert pmap(lambda x: x)(X[:2]).devices() == set(devices()[:2])
    some = pmap(lambda x: x, devices=devices()[4:6])(X[:2])
    assert some.devices() == set(devices()[4:6])
    one, other = devices()[:4], devices()[4:]
    first = pmap(lambda x: lax.psum(x, "i"), axis_name="i", devices=one)(X[:4])
    second = pmap(lambda x: lax.pmean(x, "i"), axis_name="i", devices=other)(X[4:])
    agree(first[0], X[:4].sum(0))
    agree(second[1], X[4:].mean(0))


def test_in_axes_and_out_axes() -> None:
    def f(x: Any, scale: Any, *, shift: Any) -> Any:
        return {"y": x * scale + shift, "n": lax.axis_index("i")}

    mapped = pmap(f, "i", in_axes=(1, None), out_axes={"y": 1, "n": 0})
    made = mapped(X.T, np.float32(3), shift=np.arange(N, dtype=np.float32))
    agree(made["y"], X.T * 3 + np.arange(N))
    agree(made["n"], np.arange(N))
    assert pmap(lambda x: lax.psum(x, "i"), "i", out_axes=None)(X).shape == (3,)
    agree(pmap(lambda p, x: p["w"] * x, in_axes=({"w": 0}, 0))({"w": X}, X), X * X)


def test_static_and_donated_arguments() -> None:
    mapped = pmap(lambda x, kind: x.sum() if kind == "sum" else x.max(),
                  static_broadcasted_argnums=1)  # fmt: skip
    agree(mapped(X, "sum"), X.sum(1))
    agree(mapped(X, "max"), X.max(1))
    given = pmap(lambda x: x)(X)
    pmap(lambda x: x + 1, donate_argnums=0)(given)
    assert given.is_deleted()


COLLECTIVES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "psum": (lambda x: lax.psum(x, "i"), lambda x: np.stack([x.sum(0)] * N)),
    "pmean": (lambda x: lax.pmean(x, "i"), lambda x: np.stack([x.mean(0)] * N)),
    "pmax": (lambda x: lax.pmax(x, "i"), lambda x: np.stack([x.max(0)] * N)),
    "pmin": (lambda x: lax.pmin(x, "i"), lambda x: np.stack([x.min(0)] * N)),
    "ppermute": (
        lambda x: lax.ppermute(x, "i", [(j, (j + 1) % N) for j in range(N)]),
        lambda x: np.roll(x, 1, 0),
    ),
    "part of a ppermute": (
        lambda x: lax.ppermute(x, "i", [(0, 3)]),
        lambda x: np.concatenate([np.zeros((3, 3)), x[:1], np.zeros((4, 3))]),
    ),
    "pshuffle": (lambda x: lax.pshuffle(x, "i", list(range(N))[::-1]), lambda x: x[::-1]),
    "pbroadcast": (lambda x: lax.pbroadcast(x, "i", 5), lambda x: np.stack([x[5]] * N)),
    "all_gather": (lambda x: lax.all_gather(x, "i"), lambda x: np.stack([x] * N)),
    "all_gather tiled": (
        lambda x: lax.all_gather(x, "i", tiled=True),
        lambda x: np.stack([x.ravel()] * N),
    ),
    "all_gather behind": (
        lambda x: lax.all_gather(x, "i", axis=1),
        lambda x: np.stack([x.T] * N),
    ),
    "psum_scatter": (
        lambda x: lax.psum_scatter(snp.outer(snp.arange(N), x), "i"),
        lambda x: np.outer(np.arange(N), x.sum(0)),
    ),
    "psum_scatter tiled": (
        lambda x: lax.psum_scatter(snp.tile(x, N), "i", tiled=True),
        lambda x: np.stack([x.sum(0)] * N),
    ),
    "all_to_all": (
        lambda x: lax.all_to_all(snp.outer(snp.arange(N), x), "i", 0, 0),
        lambda x: np.stack([x * j for j in range(N)]),
    ),
    "all_to_all tiled": (
        lambda x: lax.all_to_all(snp.outer(snp.arange(2 * N), x), "i", 0, 1, tiled=True),
        lambda x: np.stack(
            [np.outer([2 * j, 2 * j + 1], x.ravel()).reshape(2, -1) for j in range(N)]
        ),
    ),
    "axis_size": (lambda x: x * lax.axis_size("i"), lambda x: x * N),
    "psum of a number": (lambda x: x * lax.psum(1, "i"), lambda x: x * N),
    "groups": (
        lambda x: lax.psum(x, "i", axis_index_groups=[[0, 1], [2, 3], [4, 5], [6, 7]]),
        lambda x: np.repeat(x.reshape(4, 2, 3).sum(1), 2, 0),
    ),
    "groups far apart": (
        lambda x: lax.all_gather(x, "i", axis_index_groups=[[0, 4], [1, 5], [2, 6], [3, 7]]),
        lambda x: np.stack([x[[j % 4, j % 4 + 4]] for j in range(N)]),
    ),
    "groups of any kind": (
        lambda x: lax.all_gather(x, "i", axis_index_groups=[[0, 7], [1, 6], [2, 5], [3, 4]]),
        lambda x: np.stack([x[[min(j, 7 - j), max(j, 7 - j)]] for j in range(N)]),
    ),
    "groups that scatter": (
        lambda x: lax.psum_scatter(
            snp.stack([x, -x]), "i", axis_index_groups=[[0, 7], [1, 6], [2, 5], [3, 4]]
        ),
        lambda x: np.stack([(x[j] + x[7 - j]) * (1 if j < 4 else -1) for j in range(N)]),
    ),
    "groups that exchange": (
        lambda x: lax.all_to_all(
            snp.stack([x, -x]), "i", 0, 0, axis_index_groups=[[0, 7], [1, 6], [2, 5], [3, 4]]
        ),
        lambda x: np.stack(
            [np.stack([x[min(j, 7 - j)], x[max(j, 7 - j)]]) * (1 if j < 4 else -1)
             for j in range(N)]
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", COLLECTIVES)
def test_collectives(name: str) -> None:
    fun, expected = COLLECTIVES[name]
    agree(pmap(fun, axis_name="i")(X), expected(X))


@pytest.mark.parametrize("name", COLLECTIVES)
def test_gradients_and_vmap_of_collectives_agree_with_vmap(name: str) -> None:
    """The reference is `vmap` of the same function over the axis."""
    fun, _ = COLLECTIVES[name]

    def weighed(y: Any) -> Any:
        return snp.sum(snp.sin(y) * snp.arange(y.size, dtype=np.float32).reshape(y.shape))

    def total(mapping: Any) -> Any:
        return lambda x: weighed(mapping(lambda x: fun(x * x), axis_name="i")(x))

    agree(grad(total(pmap))(X), grad(total(vmap))(X), 1e-3)
    for one, other in zip(jvp(total(pmap), (X,), (X,)), jvp(total(vmap), (X,), (X,)), strict=True):
        agree(one, other, 1e-3)
    batch = np.stack([X, 2 * X])
    agree(vmap(pmap(fun, axis_name="i"))(batch), vmap(vmap(fun, axis_name="i"))(batch))
    agree(pmap(vmap(fun), axis_name="i", in_axes=1)(batch),
          vmap(vmap(fun), axis_name="i", in_axes=1)(batch))  # fmt: skip


def test_each_device_inside_pmap_has_its_own_cotangent() -> None:
    """The gradient of a psum is therefore multiplied by the number of devices."""
    made = pmap(grad(lambda x: lax.psum(snp.sum(x**2), "i")), axis_name="i")(X)
    agree(made, 2 * N * X)


def test_pmap_inside_of_other_transformations() -> None:
    mapped = pmap(lambda x, w: x * lax.psum(x * w, "i"), "i", in_axes=(0, None))
    plain = vmap(lambda x, w: x * lax.psum(x * w, "i"), axis_name="i", in_axes=(0, None))
    agree(jit(mapped)(X, 2.0), plain(X, 2.0), 1e-4)
    y, pull = vjp(lambda w: mapped(X, w), np.float32(2))
    agree(pull(y)[0], (np.asarray(y) * np.asarray(plain(X, 1.0))).sum(), 1e-3)
    compiled = jit(lambda x: snp.sum(pmap(snp.sin)(x)))
    agree(compiled(X), np.sin(X).sum(), 1e-4)
    assert "all-gather" not in compiled.lower(X).compile().as_text()


def test_a_pmap_inside_a_pmap() -> None:
    @partial(pmap, axis_name="rows")
    @partial(pmap, axis_name="cols")
    def f(x: Any) -> Any:
        return lax.psum(x, "rows"), lax.psum(x, "cols"), lax.psum(x, ("rows", "cols"))

    x = np.arange(8, dtype=np.float32).reshape(4, 2)
    for _ in range(2):
        rows, cols, both = f(x)
        agree(rows, np.broadcast_to(x.sum(0), (4, 2)))
        agree(cols, np.broadcast_to(x.sum(1)[:, None], (4, 2)))
        agree(both, np.full((4, 2), x.sum()))
    assert rows.devices() == set(devices())

    def places(x: Any) -> Any:
        return pmap(lambda y: lax.axis_index("rows") * 10 + lax.axis_index("cols"), "cols")(x)

    agree(pmap(places, "rows")(x), [[0, 1], [10, 11], [20, 21], [30, 31]])
    some = pmap(pmap(lambda y: y + 1), devices=devices()[::-1][:4])
    for _ in range(2):
        agree(some(x[:2]), x[:2] + 1)
    assert some(some(x[:2])).devices() == set(devices()[4:])
    agree(grad(lambda x: snp.sum(f(x)[2] * x))(x), np.full((4, 2), x.sum() * 2), 1e-4)


def test_device_put_sharded_arguments() -> None:
    some = devices()[2:6]
    put = device_put_sharded([{"x": row} for row in X[:4]], some)
    agree(put["x"], X[:4])
    assert [shard.device for shard in put["x"].addressable_shards] == some
    agree(pmap(lambda t: t["x"] + 1, devices=some)(put), X[:4] + 1)
    everywhere = device_put_replicated(X[0], devices())
    assert everywhere.shape == (N, 3)
    agree(pmap(lambda w, x: w * x)(everywhere, X), X[0] * X)
    moved = device_put(put["x"], devices()[7])
    assert moved.devices() == {devices()[7]}
    agree(device_put(pmap(lambda x: x)(X)[1], devices()[3]), X[1])
    mesh = make_mesh((4, 2), ("a", "b"))
    spread = device_put(pmap(lambda x: x)(X), NamedSharding(mesh, P("a")))
    assert {shard.data.shape for shard in spread.addressable_shards} == {(2, 3)}


def test_pmap_compiles_once() -> None:
    calls = []

    @pmap
    def f(x: Any) -> Any:
        calls.append(x)
        return x + 1

    for _ in range(3):
        f(X)
    f(f(X))
    assert len(calls) == 1


def test_pmap_and_jit_compile_the_same_program() -> None:
    """The jitted function maps over slices of an array that is sharded along them."""
    mesh = make_mesh((N,), ("i",))
    rows = device_put(X[:, None], NamedSharding(mesh, P("i")))

    def f(x: Any) -> Any:
        return snp.sin(x) * snp.cos(x)

    def body(text: str) -> list[str]:
        return [line.split("=")[1].split("(")[0] for line in text.splitlines() if "=" in line][1:]

    automatic = jit(vmap(f)).lower(rows).compile().as_text()
    manual = pmap(f, axis_name="i").lower(rows).compile().as_text()
    assert [op for op in body(manual) if op != " reshape"] == body(automatic)


def test_devices_may_take_different_branches() -> None:
    def f(x: Any) -> Any:
        first = lax.cond(lax.axis_index("i") == 0, lambda: x * 10, lambda: x)
        doubled = lax.while_loop(lambda c: c < 10, lambda c: c * 2 + 1, x)
        return lax.psum(first, "i"), doubled

    sums, doubled = pmap(f, axis_name="i")(np.arange(1, 9, dtype=np.float32))
    agree(sums, np.full(8, 36 + 9))
    agree(doubled, [15, 11, 15, 19, 11, 13, 15, 17])


def test_gradients_of_integers_are_arrays_of_float0() -> None:
    slope = grad(lambda x, i: x * i["n"], argnums=(0, 1), allow_int=True)
    numbers = np.arange(4, dtype=np.float32)
    for _ in range(2):
        by_x, by_i = pmap(slope)(numbers, {"n": np.arange(4)})
        np.testing.assert_array_equal(by_x, numbers)
        assert (by_i["n"].shape, by_i["n"].dtype) == ((4,), dtypes.float0)


def test_arrays_of_float0_are_mapped() -> None:
    empty = np.zeros((3, 4), dtypes.float0)
    shapes = []

    def f(x: Any) -> Any:
        shapes.append(x.shape)
        return x, snp.array(b"", dtype=dtypes.float0)

    moved, made = pmap(f, in_axes=1, out_axes=(0, 0))(empty)
    assert shapes[-1] == (3,)
    assert (moved.shape, made.shape) == ((4, 3), (4,))
    with pytest.raises(BatchError, match=r"axis 1 of x is 4, axis 0 of y is 3; choose others"):
        pmap(lambda x, y: x, in_axes=(1, 0))(empty, np.ones(3))
    with pytest.raises(AxisError, match=r"of x, which is float0\[3, 4\]; give it another axis"):
        pmap(lambda x: x, in_axes=2)(empty)
    with pytest.raises(AxisError, match=r"which is float0\[4\] on each device; the mapped axis"):
        pmap(lambda x: x, in_axes=0, out_axes=2)(empty)
