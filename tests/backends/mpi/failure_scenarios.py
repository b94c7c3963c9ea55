"""Run by mpiexec: what can go wrong between processes, each scenario a function by its name."""

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


def ready() -> Any:
    """An array on all devices, which all processes have agreed on, and a sum that has run."""
    sd.distributed.initialize(initialization_timeout=300)
    x = sd.device_put(np.arange(8, dtype=np.float32), sharding("data"))
    float(total(x))
    return x


@sd.jit
def total(x: Any) -> Any:
    y = snp.sum(x)
    return y


def other() -> bool:
    return sd.process_index() == 1


def rank() -> int:
    """Which process this is, before it has joined the other."""
    return int(os.environ["PMI_RANK"])


def raises() -> None:
    x = ready()
    if other():
        raise ValueError("no such file: weights.npy")
    float(total(x))


def raises_in_a_thread() -> None:
    x = ready()
    if other():
        thread = threading.Thread(target=lambda: [][0])
        thread.start()
        thread.join()
    float(total(x))


def is_killed() -> None:
    x = ready()
    if other():
        os.kill(os.getpid(), signal.SIGKILL)
    float(total(x))


def leaves_at_once() -> None:
    x = ready()
    if other():
        os._exit(3)
    float(total(x))


def ends_early() -> None:
    x = ready()
    if not other():
        float(total(x))


def skips_one() -> None:
    """One process runs the first program once less, and goes on to the second."""
    x = ready()
    if not other():
        float(total(x))
    float(snp.max(x))


def is_busy() -> None:
    x = ready()
    if other():
        time.sleep(1000)
    float(total(x))


def is_cut_off() -> None:
    """As if the network to one process were cut: it does nothing any more, not even end."""
    x = ready()
    if other():
        os.kill(os.getpid(), signal.SIGSTOP)
    float(total(x))


def is_cut_off_at_the_end() -> None:
    ready()
    if other():
        os.kill(os.getpid(), signal.SIGSTOP)


def has_work_left() -> None:
    """One process goes on for longer than others wait for signs of life."""
    ready()
    if other():
        time.sleep(10)
        print("done")


def is_not_heard() -> None:
    """As if the launcher were gone: what a process writes goes nowhere. It ends all the same."""
    x = ready()
    if other():
        time.sleep(1000)
    reads, writes = os.pipe()
    os.close(reads)
    os.dup2(writes, sys.stderr.fileno())
    float(total(x))


def loses_its_launcher() -> None:
    """Who has ended and waits for others does not do so once there is nobody to end it."""
    ready()
    if other():
        time.sleep(1000)
    os.getppid = lambda: 1


def runs_on() -> None:
    """A program without an end; it says in a file that it has begun."""
    x = ready()
    for i in range(1_000_000):
        float(total(x))
        if i == 100 and sd.process_index() == 0:
            Path(sys.argv[2]).touch()


def ends_before_it_joins() -> None:
    if rank() == 1:
        raise ModuleNotFoundError("No module named 'dataset'")
    ready()


def joins_too_late() -> None:
    if rank() == 1:
        time.sleep(1000)
    sd.distributed.initialize()


def other_shapes() -> None:
    sd.distributed.initialize()
    size = 16 if other() else 8
    x = sd.make_array_from_callback(
        (size,), sharding("data"), lambda index: np.ones(size // 8, np.float32)
    )
    total(x)


def other_shapes_later() -> None:
    """One process has less to give to a program that all have run before."""
    x = ready()
    if other():
        part = np.ones(2, np.float32)
        x = sd.make_array_from_callback((16,), sharding("data"), lambda index: part)
    total(x)


def does_not_join() -> None:
    print(float(total(sd.device_put(np.arange(8, dtype=np.float32), sharding("data")))))


def politely() -> None:
    """Many processes on few cores: each of many small sums waits for all."""
    x = ready()
    for _ in range(100):
        x = x + total(x)
    sd.distributed.barrier()
    link: Any = process_group().link
    print("polite" if link.messages.yields_core else "busy")


if __name__ == "__main__":
    globals()[sys.argv[1]]()
