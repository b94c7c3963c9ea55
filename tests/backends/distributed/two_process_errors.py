"""Run in several processes: errors that both of two processes raise, and from which both continue.

Errors of initialization come first; the later checks need initialized processes.
"""

from collections.abc import Callable
from importlib.metadata import version
from socket import gethostname
from typing import Any
from unittest import mock

import numpy as np

import shardir as sd
import shardir.numpy as snp
from shardir.distributed import barrier, gather_to_all, gather_to_root, initialize
from shardir.errors import ShardirError
from shardir.sharding import NamedSharding, PartitionSpec as P
from tests.backends.distributed.distributed_arrays import error_message
from tests.backends.distributed.failure_scenarios import (
    initialize_and_sum,
    is_second_process,
    rank,
    sharding,
    total,
)

CHECKS: list[Callable[[], None]] = []


def check(function: Callable[[], None]) -> Callable[[], None]:
    CHECKS.append(function)
    return function


def first_line(call: Callable[[], object]) -> str:
    """Return the first line of an error, with HOST as the name of this host."""
    return error_message(ShardirError, call).partition("\n")[0].replace(gethostname(), "HOST")


@check
def settings_differ() -> None:
    with sd.config(enable_x64=rank() == 1):
        assert first_line(initialize) == (
            "process 0 has the setting enable_x64=False, and process 1 has enable_x64=True; every "
            "process must have the same settings"
        )


@check
def device_counts_differ() -> None:
    sd.set_cpu_devices(4 if rank() == 1 else 8)
    assert first_line(initialize) == (
        "process 0 has the setting num_cpu_devices=8, and process 1 has num_cpu_devices=4; every "
        "process must have the same settings"
    )
    sd.set_cpu_devices(1)
    assert first_line(initialize) == (
        "1 device cannot be distributed over 2 processes; pass local_device_count=1, or set "
        "SHARDIR_CPU_DEVICES=2"
    )
    sd.set_cpu_devices(8)
    count = 2 if rank() == 1 else None
    assert first_line(lambda: initialize(local_device_count=count)) == (
        "process 1 (HOST) has a local_device_count, and process 0 (HOST) has none; pass it in "
        "every process, or in none"
    )


@check
def versions_differ() -> None:
    place = "shardir.frontend.distributed.initialize.version"

    def numpy_version(name: str) -> str:
        return "1.0" if name == "numpy" else version(name)

    patches: tuple[tuple[str, Any, str, str], ...] = (
        (place, lambda name: "0.0.7", f"shardir {version('shardir')}", "0.0.7"),
        ("sys.version_info", (3, 99, 1), "Python 3.", "3.99"),
        (place, numpy_version, f"NumPy {np.__version__}", "1.0"),
    )
    for name, wrong, mine, others in patches:
        if rank() == 1:
            with mock.patch(name, wrong):
                text = first_line(initialize)
        else:
            text = first_line(initialize)
        assert text.startswith(f"process 0 (HOST) runs {mine}")
        assert text.endswith(f", and process 1 (HOST) {others}; install the same version for all")


@check
def initialization_succeeds_after_errors() -> None:
    assert float(total(initialize_and_sum())) == 28


@check
def programs_differ() -> None:
    x = initialize_and_sum()
    end = "; every process must run the same program, on arrays of the same "
    factor = 3.0 if is_second_process() else 2.0
    text = first_line(lambda: sd.jit(lambda x: snp.sum(x * factor))(x))
    assert text.startswith("the processes disagree about lambda: its operations differ; process 0")
    assert end in text

    def step(x: Any) -> Any:
        return x + 1

    step.__name__ = "test" if is_second_process() else "train"
    assert first_line(lambda: sd.jit(step)(x)) == (
        "process 0 (HOST) is at the start of train, and process 1 (HOST) is at the start of test; "
        "all processes must run the same programs in the same order"
    )
    with sd.config(isolated=is_second_process()):
        text = first_line(lambda: sd.jit(snp.sum)(x))
    assert text.startswith(
        "the processes disagree about sum: its compiler differs; process 0 (HOST) has 'machine "
        "code', and process 1 (HOST) has 'NumPy'"
    )
    with sd.config(check_replicated_inputs=not is_second_process()):
        text = first_line(lambda: sd.jit(snp.sum)(x))
    assert text.startswith(
        "the processes disagree about sum: its setting check_replicated_inputs differs; process 0 "
        "(HOST) has 'True', and process 1 (HOST) has 'False'"
    )
    assert end in text


@check
def arguments_differ() -> None:
    @sd.jit
    def maximum(x: Any) -> Any:
        return snp.max(x)

    size = 16 if is_second_process() else 8
    x = sd.make_array_from_callback(
        (size,), sharding("data"), lambda index: np.ones(size // 8, np.float32)
    )
    assert first_line(lambda: maximum(x)).startswith(
        "the processes disagree about maximum: its arguments differ; process 0 (HOST) has '%x: "
        "f32[1] of f32[8@data]', and process 1 (HOST) has '%x: f32[2] of f32[16@data]'; every "
    )
    mesh = sd.make_mesh((2, 4) if is_second_process() else (4, 2), ("data", "model"))
    spread = NamedSharding(mesh, P(("data", "model")))
    y = sd.make_array_from_callback((8,), spread, lambda index: np.ones(1, np.float32))
    assert first_line(lambda: maximum(y)).startswith(
        "the processes disagree about maximum: its mesh differs; process 0 (HOST) has 'mesh "
        "@mesh = [data=4, model=2]', and process 1 (HOST) has 'mesh @mesh = [data=2, model=4]'"
    )


@check
def placed_arrays_differ() -> None:
    mine = np.full(8, sd.process_index(), np.float32)
    assert first_line(lambda: sd.device_put(mine, sharding("data"))) == (
        "process 1 places other elements than process 0 on devices of several processes; pass "
        "the same array in all, or the shard of each process to "
        "shardir.distributed.from_process_local"
    )


@check
def gathered_arrays_differ() -> None:
    x = initialize_and_sum()
    y = sd.device_put(x, NamedSharding(sd.make_mesh((4, 2), ("a", "b")), P("a")))
    assert first_line(lambda: gather_to_all(x if is_second_process() else y)) == (
        "processes 0 and 1 are both gathering an array of type f32[8], with different "
        "shardings or devices; every process must pass the same array"
    )
    end = "; all processes must run the same programs in the same order"
    gathering = "(HOST) is at gathering an array of type f32[8]"
    assert first_line(lambda: gather_to_root(x, sd.process_index())) == (
        f"process 0 {gathering} to process 0, and process 1 {gathering} to process 1{end}"
    )
    assert first_line(
        lambda: barrier("end of epoch 3") if is_second_process() else gather_to_all(x)
    ) == (f"process 0 {gathering}, and process 1 (HOST) is at the barrier 'end of epoch 3'{end}")


@check
def arrays_of_other_processes_are_not_readable() -> None:
    x = initialize_and_sum()
    assert first_line(lambda: np.asarray(x)).startswith(
        "this array of type f32[8] is on 8 devices, and 4 of them belong to process "
        f"{1 - sd.process_index()}"
    )


@check
def the_device_count_cannot_change() -> None:
    sd.set_cpu_devices(16)
    assert first_line(sd.devices) == (
        "distributed.initialize() distributed 8 devices over 2 processes, and now there are "
        "16; set their number before"
    )
    sd.set_cpu_devices(8)
    assert len(sd.devices()) == 8


def main() -> None:
    for each in CHECKS:
        each()
    print("all", len(CHECKS))


if __name__ == "__main__":
    main()
