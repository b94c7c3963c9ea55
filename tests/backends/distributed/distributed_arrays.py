"""Checks of arrays of several processes. Every process runs each check function."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import shardir as sd
import shardir.numpy as snp
from shardir import lax
from shardir.checkpoints import exists, load, save
from shardir.distributed import barrier, gather_to_all, gather_to_root
from shardir.frontend.errors import NotAddressableError, ShapeError
from shardir.sharding import NamedSharding, PartitionSpec as P

W = np.arange(96, dtype=np.float32).reshape(8, 12)
CHECKS: list[Callable[[Path], None]] = []


def check(function: Callable[[Path], None]) -> Callable[[Path], None]:
    CHECKS.append(function)
    return function


def mesh() -> sd.Mesh:
    return sd.make_mesh((4, 2), ("x", "y"))


def sharding(*spec: Any) -> NamedSharding:
    return NamedSharding(mesh(), P(*spec))


def put_on_mesh(array: Any, *spec: Any) -> Any:
    return sd.device_put(array, sharding(*spec), uneven="pad")


def assert_gathered_equal(found: Any, expected: Any) -> None:
    np.testing.assert_array_equal(gather_to_all(found), expected)


def error_message(error: type[Exception], call: Callable[[], object]) -> str:
    try:
        call()
    except error as caught:
        return str(caught)
    raise AssertionError(f"no {error.__name__}")


@check
def processes_share_the_devices(_: Path) -> None:
    count, index = sd.process_count(), sd.process_index()
    assert [d.id for d in sd.devices()] == list(range(8))
    mine = sd.local_devices()
    assert mine == [d for d in sd.devices() if d.process_index == index]
    assert [d for p in range(count) for d in sd.local_devices(p)] == sd.devices()
    assert sd.local_device_count() == len(mine)
    sd.distributed.initialize()  # a second call has no effect
    assert sd.process_count() == count


@check
def arrays_list_their_addressable_shards(_: Path) -> None:
    x = put_on_mesh(W, "x")
    assert not x.is_fully_addressable
    assert [shard.device for shard in x.addressable_shards] == sd.local_devices()
    for shard in x.addressable_shards:
        assert shard.replica_id == shard.device.id % 2
        np.testing.assert_array_equal(np.asarray(shard.data), W[shard.index])
    assert "several processes" in repr(x)
    assert str(x) == repr(x)
    message = error_message(NotAddressableError, lambda: np.asarray(x))
    assert "call shardir.distributed.gather_to_all(array) or gather_to_root(array)" in message
    assert set(x.sharding.addressable_devices) == set(sd.local_devices())
    np.testing.assert_array_equal(np.asarray(put_on_mesh(W)), W)  # replicated on all processes


@check
def arrays_are_gathered(_: Path) -> None:
    odd = np.arange(35, dtype=np.float32).reshape(5, 7)
    for whole in (W, odd, W.astype("int8"), np.float32(3)):
        for spec in (("x", "y"), (("y", "x"),), (None, "x"), ()):
            array = put_on_mesh(whole, *spec[: whole.ndim])
            found = gather_to_all({"a": array})["a"]
            assert found.dtype == array.dtype
            np.testing.assert_array_equal(found, whole)
            last = sd.process_count() - 1
            found = gather_to_root(array, last)
            assert (found is None) == (sd.process_index() != last)
            if found is not None:
                np.testing.assert_array_equal(found, whole)


@check
def the_gather_setting_gathers_arrays_on_read(_: Path) -> None:
    x = put_on_mesh(W, "x")
    with sd.config(gather=True):
        assert float(put_on_mesh(W, "y").sum()) == W.sum()
        np.testing.assert_array_equal(np.asarray(x), W)
        np.testing.assert_array_equal(np.asarray(sd.device_put(W, sd.devices()[-1])), W)
        for shard in x.addressable_shards:
            np.testing.assert_array_equal(np.asarray(shard.data), W[shard.index])


@check
def arrays_are_made_from_the_data_of_each_process(_: Path) -> None:
    index, count = sd.process_index(), sd.process_count()
    rows = sharding(("x", "y"))
    mine = sorted({shard.index[0].start for shard in put_on_mesh(W, ("x", "y")).addressable_shards})
    local = W[mine[0] : mine[-1] + 1]
    x = sd.distributed.from_process_local(local, rows, W.shape)
    assert_gathered_equal(x, W)
    if 8 % count == 0:
        assert_gathered_equal(sd.make_array_from_process_local_data(rows, local), W)
    assert_gathered_equal(sd.distributed.from_process_local(W, sharding()), W)
    requested_indices = []

    def part(at: tuple[slice, ...]) -> Any:
        requested_indices.append(at)
        return W[at]

    assert_gathered_equal(sd.distributed.from_callback(W.shape, sharding("x"), part), W)
    assert len(requested_indices) == len({d.id // 2 for d in sd.local_devices()})
    message = error_message(
        ShapeError, lambda: sd.distributed.from_process_local(W[:0], rows, global_shape=W.shape)
    )
    assert f"the devices of process {index} hold" in message
    shards = [sd.device_put(W[d.id : d.id + 1], d) for d in sd.local_devices()]
    assert_gathered_equal(sd.make_array_from_single_device_arrays(W.shape, rows, shards), W)


@check
def arrays_move_between_devices(_: Path) -> None:
    devices = sd.devices()
    torus = sd.Mesh(np.array([devices[i] for i in (3, 0, 7, 4, 1, 6, 2, 5)]), "t")
    places = [
        sharding("x", "y"),
        sharding(None, "x"),
        NamedSharding(torus, P(None, None)),
        NamedSharding(torus, P("t")),
        NamedSharding(sd.Mesh(np.array(devices[:2]), "a"), P("a")),
        NamedSharding(sd.Mesh(np.array(devices[-3:]), "b"), P(None, "b")),
        sd.devices()[0],
        sd.devices()[-1],
    ]
    x = sd.device_put(W, places[0])
    for place in (*places, *reversed(places)):
        x = sd.device_put(x, place)
        assert_gathered_equal(x, W)


@check
def loops_and_branches_run_across_processes(_: Path) -> None:
    x = put_on_mesh(W, "x", "y")

    @sd.jit
    def many(x: Any) -> Any:
        def body(state: Any) -> Any:
            i, x = state
            return i + 1, x / snp.sum(x) * 2

        _, y = lax.while_loop(lambda state: (state[0] < 5) & (snp.sum(state[1]) > 0), body, (0, x))
        carried, rows = lax.scan(lambda c, row: (c + row.sum(), c * row), 0.0, y)
        picked = lax.cond(snp.sum(rows) > 1e9, lambda: rows, lambda: rows + snp.max(rows))
        return carried, picked

    got = gather_to_all(many(x))
    want = many(sd.device_put(W, sd.local_devices()[0]))
    for one, other in zip(got, want, strict=True):
        np.testing.assert_allclose(one, np.asarray(other), rtol=1e-5)


@check
def eager_functions_and_indexing_run_across_processes(_: Path) -> None:
    x = put_on_mesh(W, "x", "y")
    assert_gathered_equal(snp.sort(x * 2 + 1, axis=0)[::2, 3:5].T, (W * 2 + 1)[::2, 3:5].T)
    assert_gathered_equal(x[3], W[3])
    assert_gathered_equal(snp.concatenate([x, x[::-1]]), np.concatenate([W, W[::-1]]))
    assert_gathered_equal(x.at[2:4].set(0.0)[2], np.zeros(12))
    for i, row in enumerate(x):
        assert_gathered_equal(row, W[i])


@check
def random_numbers_do_not_depend_on_the_process_count(_: Path) -> None:
    key = sd.random.key(0)
    random_normal = sd.jit(
        lambda key: sd.random.normal(key, (8, 12)), out_shardings=sharding("x", "y")
    )
    want = np.asarray(sd.random.normal(key, (8, 12)))
    np.testing.assert_allclose(gather_to_all(random_normal(key)), want, rtol=1e-6, atol=1e-6)
    bits = sd.jit(lambda key: sd.random.bits(key, (8, 12)), out_shardings=sharding("y"))
    assert_gathered_equal(bits(key), np.asarray(sd.random.bits(key, (8, 12))))


@check
def mapped_functions_run_across_processes(_: Path) -> None:
    ring = [(i, (i + 1) % 8) for i in range(8)]
    assert_gathered_equal(
        sd.pmap(lambda row: lax.ppermute(row, "i", ring), "i")(W), np.roll(W, 1, 0)
    )
    assert_gathered_equal(
        sd.pmap(lambda row: row / lax.psum(row, "i"), "i")(W + 1), (W + 1) / (W + 1).sum(0)
    )
    summed = sd.shard_map(
        lambda part: lax.psum(part, "x"), mesh=mesh(), in_specs=P("x", "y"), out_specs=P(None, "y")
    )
    assert_gathered_equal(summed(put_on_mesh(W, "x", "y")), W.reshape(4, 2, 12).sum(0))


@check
def gradients_are_summed_over_processes(_: Path) -> None:
    def loss(w: Any, x: Any) -> Any:
        return snp.mean((snp.tanh(x @ w)) ** 2)

    w = np.linspace(-1, 1, 60, dtype=np.float32).reshape(12, 5)
    step = sd.jit(sd.value_and_grad(loss))
    got = gather_to_all(step(put_on_mesh(w, None, "y"), put_on_mesh(W / 96, "x")))
    want = step(w, W / 96)
    for one, other in zip(got, want, strict=True):
        np.testing.assert_allclose(one, np.asarray(other), rtol=2e-5, atol=1e-7)


@check
def checkpoints_are_written_by_all_processes(folder: Path) -> None:
    x, b = put_on_mesh(W, "x", "y"), put_on_mesh(W[0])
    path = folder / f"checkpoint-{sd.process_count()}"
    save(path, {"w": x, "b": b, "step": 3})
    if sd.process_index() == 0:
        files = sorted(file.name for file in path.glob("process-*"))
        assert len(files) == sd.process_count()
    barrier()
    for number in (1, 2):  # Each save replaces the previous one and deletes its files.
        assert exists(path)
        save(path, {"w": x + number, "b": b, "step": 3 + number}, overwrite=True)
        found = load(path, {"w": x, "b": b, "step": 0})
        assert found["step"] == 3 + number
        assert_gathered_equal(found["w"], W + number)
        barrier()
        if sd.process_index() == 0:
            assert sorted(each.name for each in path.iterdir()) == ["index.json", f"save-{number}"]
            assert len(list((path / f"save-{number}").iterdir())) == sd.process_count()
        barrier()
    save(path, {"w": x, "b": b, "step": 3}, overwrite=True)
    for saved in sorted(folder.glob("checkpoint-*")):
        found = load(saved, {"w": put_on_mesh(W * 0, ("y", "x")), "b": W[0], "step": 0})
        assert_gathered_equal(found["w"], W)
        assert found["step"] == 3


def main(folder: str) -> None:
    sd.distributed.initialize()
    for each in CHECKS:
        each(Path(folder))
    print("all", len(CHECKS))


if __name__ == "__main__":
    main(sys.argv[1])
