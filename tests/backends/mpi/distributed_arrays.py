"""Run by mpiexec: arrays of several processes, each claim a function that every process runs."""

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
CLAIMS: list[Callable[[Path], None]] = []


def claim(function: Callable[[Path], None]) -> Callable[[Path], None]:
    CLAIMS.append(function)
    return function


def mesh() -> sd.Mesh:
    return sd.make_mesh((4, 2), ("x", "y"))


def sharding(*spec: Any) -> NamedSharding:
    return NamedSharding(mesh(), P(*spec))


def put(array: Any, *spec: Any) -> Any:
    return sd.device_put(array, sharding(*spec), uneven="pad")


def same(found: Any, wanted: Any) -> None:
    np.testing.assert_array_equal(gather_to_all(found), wanted)


def refused(error: type[Exception], call: Callable[[], object]) -> str:
    try:
        call()
    except error as caught:
        return str(caught)
    raise AssertionError(f"no {error.__name__}")


@claim
def processes_share_the_devices(_: Path) -> None:
    count, index = sd.process_count(), sd.process_index()
    assert [d.id for d in sd.devices()] == list(range(8))
    mine = sd.local_devices()
    assert mine == [d for d in sd.devices() if d.process_index == index]
    assert [d for p in range(count) for d in sd.local_devices(p)] == sd.devices()
    assert sd.local_device_count() == len(mine)
    sd.distributed.initialize()  # again: nothing
    assert sd.process_count() == count


@claim
def arrays_know_what_is_here(_: Path) -> None:
    x = put(W, "x")
    assert not x.is_fully_addressable
    assert [shard.device for shard in x.addressable_shards] == sd.local_devices()
    for shard in x.addressable_shards:
        assert shard.replica_id == shard.device.id % 2
        np.testing.assert_array_equal(np.asarray(shard.data), W[shard.index])
    assert "several processes" in repr(x)
    assert str(x) == repr(x)
    told = refused(NotAddressableError, lambda: np.asarray(x))
    assert "call shardir.distributed.gather_to_all(array) or gather_to_root(array)" in told
    assert set(x.sharding.addressable_devices) == set(sd.local_devices())
    np.testing.assert_array_equal(np.asarray(put(W)), W)  # replicated: all of it is here


@claim
def arrays_are_gathered(_: Path) -> None:
    odd = np.arange(35, dtype=np.float32).reshape(5, 7)
    for whole in (W, odd, W.astype("int8"), np.float32(3)):
        for spec in (("x", "y"), (("y", "x"),), (None, "x"), ()):
            array = put(whole, *spec[: whole.ndim])
            found = gather_to_all({"a": array})["a"]
            assert found.dtype == array.dtype
            np.testing.assert_array_equal(found, whole)
            last = sd.process_count() - 1
            found = gather_to_root(array, last)
            assert (found is None) == (sd.process_index() != last)
            if found is not None:
                np.testing.assert_array_equal(found, whole)


@claim
def a_setting_gathers_what_is_read(_: Path) -> None:
    x = put(W, "x")
    with sd.config(gather=True):
        assert float(put(W, "y").sum()) == W.sum()
        np.testing.assert_array_equal(np.asarray(x), W)
        np.testing.assert_array_equal(np.asarray(sd.device_put(W, sd.devices()[-1])), W)
        for shard in x.addressable_shards:
            np.testing.assert_array_equal(np.asarray(shard.data), W[shard.index])


@claim
def processes_give_what_they_have(_: Path) -> None:
    index, count = sd.process_index(), sd.process_count()
    rows = sharding(("x", "y"))
    mine = sorted({shard.index[0].start for shard in put(W, ("x", "y")).addressable_shards})
    local = W[mine[0] : mine[-1] + 1]
    x = sd.distributed.from_process_local(local, rows, W.shape)
    same(x, W)
    if 8 % count == 0:
        same(sd.make_array_from_process_local_data(rows, local), W)
    same(sd.distributed.from_process_local(W, sharding()), W)
    asked = []

    def part(at: tuple[slice, ...]) -> Any:
        asked.append(at)
        return W[at]

    same(sd.distributed.from_callback(W.shape, sharding("x"), part), W)
    assert len(asked) == len({d.id // 2 for d in sd.local_devices()})
    told = refused(
        ShapeError, lambda: sd.distributed.from_process_local(W[:0], rows, global_shape=W.shape)
    )
    assert f"the devices of process {index} hold" in told
    shards = [sd.device_put(W[d.id : d.id + 1], d) for d in sd.local_devices()]
    same(sd.make_array_from_single_device_arrays(W.shape, rows, shards), W)


@claim
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
        same(x, W)


@claim
def programs_with_loops_run_across_processes(_: Path) -> None:
    x = put(W, "x", "y")

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


@claim
def eager_functions_and_indexing_run_across_processes(_: Path) -> None:
    x = put(W, "x", "y")
    same(snp.sort(x * 2 + 1, axis=0)[::2, 3:5].T, (W * 2 + 1)[::2, 3:5].T)
    same(x[3], W[3])
    same(snp.concatenate([x, x[::-1]]), np.concatenate([W, W[::-1]]))
    same(x.at[2:4].set(0.0)[2], np.zeros(12))
    for i, row in enumerate(x):
        same(row, W[i])


@claim
def random_numbers_are_the_same_on_any_processes(_: Path) -> None:
    key = sd.random.key(0)
    drawn = sd.jit(lambda key: sd.random.normal(key, (8, 12)), out_shardings=sharding("x", "y"))
    want = np.asarray(sd.random.normal(key, (8, 12)))
    np.testing.assert_allclose(gather_to_all(drawn(key)), want, rtol=1e-6, atol=1e-6)
    bits = sd.jit(lambda key: sd.random.bits(key, (8, 12)), out_shardings=sharding("y"))
    same(bits(key), np.asarray(sd.random.bits(key, (8, 12))))


@claim
def mapped_functions_run_across_processes(_: Path) -> None:
    ring = [(i, (i + 1) % 8) for i in range(8)]
    same(sd.pmap(lambda row: lax.ppermute(row, "i", ring), "i")(W), np.roll(W, 1, 0))
    same(sd.pmap(lambda row: row / lax.psum(row, "i"), "i")(W + 1), (W + 1) / (W + 1).sum(0))
    summed = sd.shard_map(
        lambda part: lax.psum(part, "x"), mesh=mesh(), in_specs=P("x", "y"), out_specs=P(None, "y")
    )
    same(summed(put(W, "x", "y")), W.reshape(4, 2, 12).sum(0))


@claim
def gradients_are_summed_over_processes(_: Path) -> None:
    def loss(w: Any, x: Any) -> Any:
        return snp.mean((snp.tanh(x @ w)) ** 2)

    w = np.linspace(-1, 1, 60, dtype=np.float32).reshape(12, 5)
    step = sd.jit(sd.value_and_grad(loss))
    got = gather_to_all(step(put(w, None, "y"), put(W / 96, "x")))
    want = step(w, W / 96)
    for one, other in zip(got, want, strict=True):
        np.testing.assert_allclose(one, np.asarray(other), rtol=2e-5, atol=1e-7)


@claim
def checkpoints_are_written_together(folder: Path) -> None:
    x, b = put(W, "x", "y"), put(W[0])
    path = folder / f"checkpoint-{sd.process_count()}"
    save(path, {"w": x, "b": b, "step": 3})
    if sd.process_index() == 0:
        files = sorted(file.name for file in path.glob("process-*"))
        assert len(files) == sd.process_count()
    barrier()
    for number in (1, 2):  # Each replaces the one before, whose files are gone afterwards.
        assert exists(path)
        save(path, {"w": x + number, "b": b, "step": 3 + number}, overwrite=True)
        found = load(path, {"w": x, "b": b, "step": 0})
        assert found["step"] == 3 + number
        same(found["w"], W + number)
        barrier()
        if sd.process_index() == 0:
            assert sorted(each.name for each in path.iterdir()) == ["index.json", f"save-{number}"]
            assert len(list((path / f"save-{number}").iterdir())) == sd.process_count()
        barrier()
    save(path, {"w": x, "b": b, "step": 3}, overwrite=True)
    for saved in sorted(folder.glob("checkpoint-*")):
        found = load(saved, {"w": put(W * 0, ("y", "x")), "b": W[0], "step": 0})
        same(found["w"], W)
        assert found["step"] == 3


def main(folder: str) -> None:
    sd.distributed.initialize()
    for each in CLAIMS:
        each(Path(folder))
    print("all", len(CLAIMS))


if __name__ == "__main__":
    main(sys.argv[1])
