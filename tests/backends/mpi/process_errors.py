"""Run by mpiexec: mistakes that are refused in every process, which can all go on afterwards."""

import json
import resource
import sys
from collections.abc import Callable
from contextlib import chdir
from functools import partial
from pathlib import Path
from socket import gethostname
from typing import Any
from unittest.mock import patch

import numpy as np

import shardir as sd
from shardir.checkpoints import exists, load, save
from shardir.distributed import barrier, gather_to_root
from shardir.errors import ShardirError
from shardir.experimental import multihost_utils
from shardir.frontend.distributed.processes import SINGLE_PROCESS
from shardir.frontend.errors import ArgumentError, CheckpointError, DistributedError
from shardir.sharding import NamedSharding, PartitionSpec as P
from tests.backends.mpi.distributed_arrays import W, put, refused, same, sharding

CLAIMS: list[Callable[[Path], None]] = []


def claim(function: Callable[[Path], None]) -> Callable[[Path], None]:
    CLAIMS.append(function)
    return function


def told(error: type[Exception], call: Callable[[], object]) -> str:
    """The first line of an error, without the names of hosts."""
    return refused(error, call).partition("\n")[0].replace(f" ({gethostname()})", "")


def mine() -> int:
    return sd.process_index()


def first() -> bool:
    return sd.process_index() == 0


SAME = (
    "pass the same in every process, or each its shard with shardir.distributed.from_process_local"
)


@claim
def numbers_of_each_process_are_the_same(_: Path) -> None:
    x = put(W, "x")
    with_argument = sd.jit(lambda x, y: x + y)
    assert told(ArgumentError, lambda: with_argument(x, np.full((8, 12), mine(), np.float32))) == (
        "%y of lambda (f32[8, 12]) is not placed on devices, and has other elements in process 1 "
        f"than in process 0; {SAME}"
    )
    assert told(ArgumentError, lambda: x * float(mine())).startswith(
        "%y of multiply (f32[]) is not placed on devices, and has other elements in process 1 "
    )
    big = np.full((8, 12, 100), mine(), np.float32)
    assert "(f32[8, 12, 100]) is not placed on devices" in told(
        ArgumentError, lambda: sd.jit(lambda x: x[:, :, None] + big)(x)
    )
    key = sd.random.key(mine())
    drawn = sd.jit(lambda key: sd.random.bits(key, (8, 12)), out_shardings=sharding("x"))
    assert "%key of lambda (key[]) is not placed on devices" in told(
        ArgumentError, lambda: drawn(key)
    )
    same(with_argument(x, W), W + W)  # after a mistake, too
    # On its own devices each process does as it likes.
    alone = sd.device_put(W, sd.local_devices()[0])
    np.testing.assert_array_equal(np.asarray(alone * float(mine())), W * mine())


@claim
def programs_that_differ_are_told_with_the_line(_: Path) -> None:
    x = put(W, "x")
    text = refused(ShardirError, lambda: sd.jit(lambda x, k: x * k, static_argnums=1)(x, mine()))
    assert text.startswith("the processes disagree about lambda: its operations differ; process 0")
    assert "process_errors.py:" in text


@claim
def processes_save_the_same(folder: Path) -> None:
    x, y = put(W, "x"), put(W, "y")
    path = folder / "differs"
    start = f"the processes do not save the same to {path}: "
    end = "; every process must save the same pytree"
    for tree, what in (
        ({"a" if first() else "b": x}, "process 0 has an array 'a', and process 1 has none"),
        (
            {"a": x, **({} if first() else {"c": x})},
            "process 1 has an array 'c', and process 0 has none",
        ),
        ({"a": x if first() else y}, "'a' is on other devices in process 1 than in process 0"),
        ({"a": x if first() else 2}, "'a' is f32[8, 12] in process 0 and i32[] in process 1"),
        (
            {"n": mine()},
            "'n' is not placed on devices, and has other elements in process 1 than in process 0",
        ),
    ):
        assert told(CheckpointError, partial(save, path, tree)) == start + what + end
    assert not list(folder.glob("*differs*"))


@claim
def a_save_that_fails_in_one_process_fails_in_all(folder: Path) -> None:
    path = folder / "small"
    save(path, {"x": put(W, ("x", "y"))})
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    last = sd.process_count() - 1
    if mine() == last:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    large = put(np.ones((8, 12, 1000), np.float32), ("x", "y"))
    text = told(CheckpointError, lambda: save(path, {"x": large}, overwrite=True))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert text.startswith(f"{path} cannot be written by process {last}: ")
    assert "File too large" in text
    same(load(path, {"x": put(W * 0, "y")})["x"], W)  # the one before
    barrier()
    assert [each.name for each in folder.glob("*small*")] == ["small"]
    if first():
        (folder / "file").touch()
    barrier()
    text = told(CheckpointError, lambda: save(folder / "file" / "small", {"x": put(W, "x")}))
    assert text.startswith(f"{folder / 'file' / 'small'} cannot be written by process 0: ")


@claim
def processes_load_the_same(folder: Path) -> None:
    own = folder / f"own-{mine()}"
    path = folder / "shared"
    save(path, {"x": put(W, "x"), "step": 3})
    # As if every host had a folder of this name.
    own.mkdir()
    for file in path.iterdir():
        (own / file.name).write_bytes(file.read_bytes())
    index = json.loads((own / "index.json").read_text("utf-8"))
    index["arrays"]["x"]["shape"] = [8, 12]
    index["arrays"]["other"] = index["arrays"]["step"] if mine() else index["arrays"]["x"]
    (own / "index.json").write_text(json.dumps(index), "utf-8")
    text = told(CheckpointError, lambda: load(own, {"x": put(W, "y")}))
    assert text == (
        f"process 1 finds another checkpoint than process 0, here at {own}; "
        "use a folder that all processes can read"
    )
    if first():  # nothing on devices of others: nobody else has to be there
        assert load(path, {"step": 0}) == {"step": 3}


@claim
def a_folder_that_one_process_sees_is_an_error_in_all(folder: Path) -> None:
    disk = folder / f"disk-{mine()}"  # As if each host had a disk of its own.
    disk.mkdir()
    with chdir(disk):
        state = {"x": put(W, ("x", "y"))}
        path = Path("own")
        if mine() == 1:
            alone(save, path, {"step": 3.0})
        barrier()
        assert told(CheckpointError, lambda: save(path, state)) == (
            "process 1: own exists; save to another folder, or pass overwrite=True to replace it"
        )
        text = told(CheckpointError, lambda: save(path, state, overwrite=True))
        assert text.startswith("own cannot be written by process ")
        assert "No such file or directory" in text
        assert [each.name for each in disk.iterdir()] == ["own"] * (mine() == 1)
        barrier()
        lacks = "process 0: own is not a checkpoint: it has no index.json; write one with save"
        assert told(CheckpointError, lambda: load(path, state)) == lacks
        sharded = sharding(("x", "y"))
        assert told(CheckpointError, lambda: load(path, shardings=sharded)) == lacks
        assert told(CheckpointError, lambda: exists(path)) == (
            "process 1 finds a checkpoint at own, and process 0 finds none; use a folder that all "
            "processes can read"
        )
        if mine() != 1:
            alone(save, path, {"step": 3.0})
        barrier()
        assert exists(path)
        text = told(CheckpointError, lambda: save(path, state, overwrite=True))
        assert text.startswith("own cannot be written by process ")
        assert "No such file or directory" in text
        assert alone(load, path, {"step": 0.0})["step"] == 3.0
        barrier()


def alone(call: Callable[..., Any], *args: Any) -> Any:
    """Do what this process does when there are no others."""
    with patch("shardir.frontend.distributed.processes._current_group", [SINGLE_PROCESS]):
        return call(*args)


@claim
def a_load_that_fails_in_one_process_fails_in_all(folder: Path) -> None:
    path = folder / "damaged"
    save(path, {"x": put(W, ("x", "y"))})
    if first():
        (path / "process-00001.safetensors").write_text("nothing", "utf-8")
    barrier()
    text = told(CheckpointError, lambda: load(path, {"x": put(W, ("x", "y"))}))
    start = f"process 1: {path / 'process-00001.safetensors'} of the checkpoint cannot be read: "
    assert text.startswith(start)


@claim
def hosts_compare_what_they_have(_: Path) -> None:
    same_everywhere = {"a": W, "b": put(W)}
    multihost_utils.assert_equal(same_everywhere)
    text = refused(
        AssertionError, lambda: multihost_utils.assert_equal({"a": 1, "b": mine()}, "the seeds")
    )
    assert text.startswith("the seeds: 'b' is not the same in process 1 as in process 0")
    x = put(W, ("x", "y"))
    mesh = x.sharding.mesh
    here = multihost_utils.global_array_to_host_local_array(x, mesh, P(("x", "y")))
    rows = sorted({device.id for device in sd.local_devices()})
    np.testing.assert_array_equal(np.asarray(here), W[rows[0] : rows[-1] + 1])
    elsewhere = sd.Mesh(np.array(sd.local_devices(0)), "a")
    y = sd.device_put(W, NamedSharding(elsewhere, P()))
    if not first():
        text = refused(
            DistributedError,
            lambda: multihost_utils.global_array_to_host_local_array(y, elsewhere, P()),
        )
        assert f"belongs to process {mine()}, which has no shard" in text


@claim
def what_is_elsewhere_says_where(_: Path) -> None:
    assert repr(sd.device_put(W, sd.devices()[0])).startswith(
        "Array([[" if first() else "Array(f32"
    )
    last = sd.device_put(W, sd.devices()[-1])
    if mine() < sd.process_count() - 1:
        assert repr(last) == f"Array(f32[8, 12] on 1 device of process {sd.process_count() - 1})"
    for root in (-1, sd.process_count()):
        text = refused(DistributedError, partial(gather_to_root, last, root))
        assert text.startswith(f"gather_to_root got the root {root!r}; processes are 0 to 2")


@claim
def shards_of_others_have_no_data(_: Path) -> None:
    x = put(W, "x")
    shards = x.global_shards
    assert [each.device for each in shards] == sd.devices()
    here = set(sd.local_devices())
    for each in shards:
        assert (each.data is not None) == (each.device in here)
        assert each.replica_id == each.device.id % 2
        assert W[each.index].shape == (2, 12)


@claim
def all_come_to_the_end(_: Path) -> None:
    sd.distributed.shutdown()


def main(folder: str) -> None:
    sd.distributed.initialize(coordinator_address="10.0.0.1:1234", heartbeat_timeout_seconds=10)
    for each in CLAIMS:
        each(Path(folder))
    print("all", len(CLAIMS))


if __name__ == "__main__":
    main(sys.argv[1])
