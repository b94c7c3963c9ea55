"""Run in several processes: failures of processes. The argument names the scenario function."""

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

import shardir as sd
import shardir.numpy as snp
from shardir.frontend.distributed.processes import process_group
from shardir.sharding import NamedSharding, PartitionSpec as P


def sharding(*spec: str | None) -> NamedSharding:
    return NamedSharding(sd.make_mesh((8,), ("data",)), P(*spec))


def initialize_and_sum() -> Any:
    """Initialize the processes, run a sum, and return an array on all devices."""
    sd.distributed.initialize(initialization_timeout=300)
    x = sd.device_put(np.arange(8, dtype=np.float32), sharding("data"))
    float(total(x))
    return x


@sd.jit
def total(x: Any) -> Any:
    y = snp.sum(x)
    return y


def is_second_process() -> bool:
    return sd.process_index() == 1


def rank() -> int:
    """Return the number of this process before initialization."""
    names = ("SHARDIR_PROCESS_ID", "RANK", "PMI_RANK")
    return int(next(os.environ[name] for name in names if name in os.environ))


def raises() -> None:
    x = initialize_and_sum()
    if is_second_process():
        raise ValueError("no such file: weights.npy")
    float(total(x))


def raises_in_a_thread() -> None:
    x = initialize_and_sum()
    if is_second_process():
        thread = threading.Thread(target=lambda: [][0])
        thread.start()
        thread.join()
    float(total(x))


def is_killed() -> None:
    x = initialize_and_sum()
    if is_second_process():
        os.kill(os.getpid(), signal.SIGKILL)
    float(total(x))


def exits_immediately() -> None:
    x = initialize_and_sum()
    if is_second_process():
        os._exit(3)
    float(total(x))


def exits_with_a_code() -> None:
    x = initialize_and_sum()
    if is_second_process():
        sys.exit(3)
    float(total(x))


def ends_early() -> None:
    x = initialize_and_sum()
    if not is_second_process():
        float(total(x))


def skips_a_run() -> None:
    """One process skips the second run of the first program and continues with the second
    program."""
    x = initialize_and_sum()
    if not is_second_process():
        float(total(x))
    float(snp.max(x))


def is_busy() -> None:
    x = initialize_and_sum()
    if is_second_process():
        time.sleep(1000)
    float(total(x))


def is_cut_off() -> None:
    """SIGSTOP simulates a lost network connection: the process neither works nor ends."""
    x = initialize_and_sum()
    if is_second_process():
        os.kill(os.getpid(), signal.SIGSTOP)
    float(total(x))


def is_cut_off_at_the_end() -> None:
    initialize_and_sum()
    if is_second_process():
        os.kill(os.getpid(), signal.SIGSTOP)


def has_work_left() -> None:
    """One process runs for longer than the timeout of heartbeats."""
    initialize_and_sum()
    if is_second_process():
        time.sleep(10)
        print("done")


def loses_stderr() -> None:
    """A closed pipe simulates a lost launcher: writing an error message fails. The job must end."""
    x = initialize_and_sum()
    if is_second_process():
        time.sleep(1000)
    reads, writes = os.pipe()
    os.close(reads)
    os.dup2(writes, sys.stderr.fileno())
    float(total(x))


def loses_its_launcher() -> None:
    """A process that has ended and waits for others must stop waiting if its launcher has died."""
    initialize_and_sum()
    if is_second_process():
        time.sleep(1000)
    os.getppid = lambda: 1


def runs_forever() -> None:
    """Run an endless program, which creates a file after its start."""
    x = initialize_and_sum()
    for i in range(1_000_000):
        float(total(x))
        if i == 100 and sd.process_index() == 0:
            Path(sys.argv[2]).touch()


def ends_before_it_joins() -> None:
    if rank() == 1:
        raise ModuleNotFoundError("No module named 'dataset'")
    initialize_and_sum()


def joins_too_late() -> None:
    if rank() == 1:
        time.sleep(1000)
    sd.distributed.initialize()


def other_shapes() -> None:
    sd.distributed.initialize()
    size = 16 if is_second_process() else 8
    x = sd.make_array_from_callback(
        (size,), sharding("data"), lambda index: np.ones(size // 8, np.float32)
    )
    total(x)


def other_shapes_later() -> None:
    """One process passes a smaller argument to a program that all processes have already run."""
    x = initialize_and_sum()
    if is_second_process():
        part = np.ones(2, np.float32)
        x = sd.make_array_from_callback((16,), sharding("data"), lambda index: part)
    total(x)


def does_not_join() -> None:
    print(float(total(sd.device_put(np.arange(8, dtype=np.float32), sharding("data")))))


def oversubscribes_cores() -> None:
    """Start more processes than cores; each of many small sums waits for all processes."""
    x = initialize_and_sum()
    for _ in range(100):
        x = x + total(x)
    sd.distributed.barrier()
    link: Any = process_group().link
    print("yields" if link.messages.yields_core else "busy")


if __name__ == "__main__":
    globals()[sys.argv[1]]()
