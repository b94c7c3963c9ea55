"""Run in several processes: errors that all raise together, and from which all can continue."""

import json
import os
import resource
import signal
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
from tests.backends.distributed.distributed_arrays import (
    W,
    assert_gathered_equal,
    error_message,
    put_on_mesh,
    sharding,
)

CHECKS: list[Callable[[Path], None]] = []


def check(function: Callable[[Path], None]) -> Callable[[Path], None]:
    CHECKS.append(function)
    return function


def first_line(error: type[Exception], call: Callable[[], object]) -> str:
    """Return the first line of an error without host names."""
    return error_message(error, call).partition("\n")[0].replace(f" ({gethostname()})", "")


def own_index() -> int:
    return sd.process_index()


def is_first_process() -> bool:
    return sd.process_index() == 0


PASS_THE_SAME = (
    "pass the same in every process, or each its shard with shardir.distributed.from_process_local"
)


@check
def inputs_that_differ_are_errors(_: Path) -> None:
    x = put_on_mesh(W, "x")
    with_argument = sd.jit(lambda x, y: x + y)
    assert first_line(
        ArgumentError, lambda: with_argument(x, np.full((8, 12), own_index(), np.float32))
    ) == (
        "%y of lambda (f32[8, 12]) is not placed on devices, and has other elements in process 1 "
        f"than in process 0; {PASS_THE_SAME}"
    )
    assert first_line(ArgumentError, lambda: x * float(own_index())).startswith(
        "%y of multiply (f32[]) is not placed on devices, and has other elements in process 1 "
    )
    big = np.full((8, 12, 100), own_index(), np.float32)
    assert "(f32[8, 12, 100]) is not placed on devices" in first_line(
        ArgumentError, lambda: sd.jit(lambda x: x[:, :, None] + big)(x)
    )
    key = sd.random.key(own_index())
    drawn = sd.jit(lambda key: sd.random.bits(key, (8, 12)), out_shardings=sharding("x"))
    assert "%key of lambda (key[]) is not placed on devices" in first_line(
        ArgumentError, lambda: drawn(key)
    )
    assert_gathered_equal(with_argument(x, W), W + W)  # the processes still work after an error
    # On local devices, the processes may run different programs.
    local = sd.device_put(W, sd.local_devices()[0])
    np.testing.assert_array_equal(np.asarray(local * float(own_index())), W * own_index())


@check
def programs_that_differ_are_errors_with_the_line(_: Path) -> None:
    x = put_on_mesh(W, "x")
    text = error_message(
        ShardirError, lambda: sd.jit(lambda x, k: x * k, static_argnums=1)(x, own_index())
    )
    assert text.startswith("the processes disagree about lambda: its operations differ; process 0")
    assert "process_errors.py:" in text


@check
def saves_that_differ_are_errors(folder: Path) -> None:
    x, y = put_on_mesh(W, "x"), put_on_mesh(W, "y")
    path = folder / "differs"
    start = f"the processes do not save the same to {path}: "
    end = "; every process must save the same pytree"
    for tree, what in (
        (
            {"a" if is_first_process() else "b": x},
            "process 0 has an array 'a', and process 1 has none",
        ),
        (
            {"a": x, **({} if is_first_process() else {"c": x})},
            "process 1 has an array 'c', and process 0 has none",
        ),
        (
            {"a": x if is_first_process() else y},
            "'a' is on other devices in process 1 than in process 0",
        ),
        (
            {"a": x if is_first_process() else 2},
            "'a' is f32[8, 12] in process 0 and i32[] in process 1",
        ),
        (
            {"n": own_index()},
            "'n' is not placed on devices, and has other elements in process 1 than in process 0",
        ),
    ):
        assert first_line(CheckpointError, partial(save, path, tree)) == start + what + end
    assert not list(folder.glob("*differs*"))


@check
def a_save_that_fails_in_one_process_fails_in_all(folder: Path) -> None:
    path = folder / "small"
    save(path, {"x": put_on_mesh(W, ("x", "y"))})
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    last = sd.process_count() - 1
    if own_index() == last:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    large = put_on_mesh(np.ones((8, 12, 1000), np.float32), ("x", "y"))
    text = first_line(CheckpointError, lambda: save(path, {"x": large}, overwrite=True))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert text.startswith(f"{path} cannot be written by process {last}: ")
    assert "File too large" in text
    # The previous checkpoint is intact.
    assert_gathered_equal(load(path, {"x": put_on_mesh(W * 0, "y")})["x"], W)
    barrier()
    assert [each.name for each in folder.glob("*small*")] == ["small"]
    if is_first_process():
        (folder / "file").touch()
    barrier()
    text = first_line(
        CheckpointError, lambda: save(folder / "file" / "small", {"x": put_on_mesh(W, "x")})
    )
    assert text.startswith(f"{folder / 'file' / 'small'} cannot be written by process 0: ")


@check
def loads_that_differ_are_errors(folder: Path) -> None:
    own = folder / f"own-{own_index()}"
    path = folder / "shared"
    save(path, {"x": put_on_mesh(W, "x"), "step": 3})
    # Simulate one folder of this name per host.
    own.mkdir()
    for file in path.iterdir():
        (own / file.name).write_bytes(file.read_bytes())
    index = json.loads((own / "index.json").read_text("utf-8"))
    index["arrays"]["x"]["shape"] = [8, 12]
    index["arrays"]["other"] = index["arrays"]["step"] if own_index() else index["arrays"]["x"]
    (own / "index.json").write_text(json.dumps(index), "utf-8")
    text = first_line(CheckpointError, lambda: load(own, {"x": put_on_mesh(W, "y")}))
    assert text == (
        f"process 1 finds another checkpoint than process 0, here at {own}; "
        "use a folder that all processes can read"
    )
    # A load without arrays on devices of other processes does not need these processes.
    if is_first_process():
        assert load(path, {"step": 0}) == {"step": 3}


@check
def a_folder_visible_to_one_process_is_an_error_in_all(folder: Path) -> None:
    disk = folder / f"disk-{own_index()}"  # simulates a local disk per host
    disk.mkdir()
    with chdir(disk):
        state = {"x": put_on_mesh(W, ("x", "y"))}
        path = Path("own")
        if own_index() == 1:
            call_as_single_process(save, path, {"step": 3.0})
        barrier()
        assert first_line(CheckpointError, lambda: save(path, state)) == (
            "process 1: own exists; save to another folder, or pass overwrite=True to replace it"
        )
        text = first_line(CheckpointError, lambda: save(path, state, overwrite=True))
        assert text.startswith("own cannot be written by process ")
        assert "No such file or directory" in text
        assert [each.name for each in disk.iterdir()] == ["own"] * (own_index() == 1)
        barrier()
        missing_index = (
            "process 0: own is not a checkpoint: it has no index.json; write one with save"
        )
        assert first_line(CheckpointError, lambda: load(path, state)) == missing_index
        sharded = sharding(("x", "y"))
        assert first_line(CheckpointError, lambda: load(path, shardings=sharded)) == missing_index
        assert first_line(CheckpointError, lambda: exists(path)) == (
            "process 1 finds a checkpoint at own, and process 0 finds none; use a folder that all "
            "processes can read"
        )
        if own_index() != 1:
            call_as_single_process(save, path, {"step": 3.0})
        barrier()
        assert exists(path)
        text = first_line(CheckpointError, lambda: save(path, state, overwrite=True))
        assert text.startswith("own cannot be written by process ")
        assert "No such file or directory" in text
        assert call_as_single_process(load, path, {"step": 0.0})["step"] == 3.0
        barrier()


def call_as_single_process(call: Callable[..., Any], *args: Any) -> Any:
    """Call a function as the only process of a job."""
    with patch("shardir.frontend.distributed.processes._current_group", [SINGLE_PROCESS]):
        return call(*args)


@check
def a_load_that_fails_in_one_process_fails_in_all(folder: Path) -> None:
    path = folder / "damaged"
    save(path, {"x": put_on_mesh(W, ("x", "y"))})
    if is_first_process():
        (path / "process-00001.safetensors").write_text("nothing", "utf-8")
    barrier()
    text = first_line(CheckpointError, lambda: load(path, {"x": put_on_mesh(W, ("x", "y"))}))
    start = f"process 1: {path / 'process-00001.safetensors'} of the checkpoint cannot be read: "
    assert text.startswith(start)


@check
def assert_equal_compares_processes(_: Path) -> None:
    same_everywhere = {"a": W, "b": put_on_mesh(W)}
    multihost_utils.assert_equal(same_everywhere)
    text = error_message(
        AssertionError,
        lambda: multihost_utils.assert_equal({"a": 1, "b": own_index()}, "the seeds"),
    )
    assert text.startswith("the seeds: 'b' is not the same in process 1 as in process 0")
    x = put_on_mesh(W, ("x", "y"))
    mesh = x.sharding.mesh
    here = multihost_utils.global_array_to_host_local_array(x, mesh, P(("x", "y")))
    rows = sorted({device.id for device in sd.local_devices()})
    np.testing.assert_array_equal(np.asarray(here), W[rows[0] : rows[-1] + 1])
    elsewhere = sd.Mesh(np.array(sd.local_devices(0)), "a")
    y = sd.device_put(W, NamedSharding(elsewhere, P()))
    if not is_first_process():
        text = error_message(
            DistributedError,
            lambda: multihost_utils.global_array_to_host_local_array(y, elsewhere, P()),
        )
        assert f"belongs to process {own_index()}, which has no shard" in text


@check
def live_devices_raises_in_all_processes(_: Path) -> None:
    with multihost_utils.live_devices(sd.devices()[::-1]) as devices:
        assert devices == sd.devices()

    def fail_in_one_process() -> None:
        with multihost_utils.live_devices(sd.devices()):
            if is_first_process():
                raise ZeroDivisionError("here")

    if is_first_process():
        assert error_message(ZeroDivisionError, fail_in_one_process) == "here"
    else:
        assert first_line(DistributedError, fail_in_one_process) == (
            "the body of live_devices raised an error in process 0, so that its results are not "
            "complete in this process"
        )
    text = first_line(ArgumentError, lambda: multihost_utils.live_devices(sd.local_devices(0)))
    assert text == (
        "live_devices has no device of process 1; pass devices of all processes, which wait for "
        "each other"
    )


@check
def all_processes_save_after_one_is_preempted(_: Path) -> None:
    assert not multihost_utils.reached_preemption_sync_point(0)
    if own_index() == 1:
        os.kill(os.getpid(), signal.SIGTERM)
    assert multihost_utils.reached_preemption_sync_point(1)
    text = first_line(
        DistributedError, lambda: multihost_utils.reached_preemption_sync_point(own_index())
    )
    assert text == (
        "reached_preemption_sync_point was called for the steps [0, 1, 2] of the processes; call "
        "it in every step of each process"
    )
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


@check
def arrays_of_other_processes_state_their_process(_: Path) -> None:
    assert repr(sd.device_put(W, sd.devices()[0])).startswith(
        "Array([[" if is_first_process() else "Array(f32"
    )
    last = sd.device_put(W, sd.devices()[-1])
    if own_index() < sd.process_count() - 1:
        assert repr(last) == f"Array(f32[8, 12] on 1 device of process {sd.process_count() - 1})"
    for root in (-1, sd.process_count()):
        text = error_message(DistributedError, partial(gather_to_root, last, root))
        assert text.startswith(f"gather_to_root got the root {root!r}; processes are 0 to 2")


@check
def shards_of_others_have_no_data(_: Path) -> None:
    x = put_on_mesh(W, "x")
    shards = x.global_shards
    assert [each.device for each in shards] == sd.devices()
    here = set(sd.local_devices())
    for each in shards:
        assert (each.data is not None) == (each.device in here)
        assert each.replica_id == each.device.id % 2
        assert W[each.index].shape == (2, 12)


@check
def all_processes_shut_down(_: Path) -> None:
    sd.distributed.shutdown()


def main(folder: str) -> None:
    sd.distributed.initialize(coordinator_address="10.0.0.1:1234", heartbeat_timeout_seconds=10)
    for each in CHECKS:
        each(Path(folder))
    print("all", len(CHECKS))


if __name__ == "__main__":
    main(sys.argv[1])
