"""The peak performance of this machine, measured with all workers: the roofline of profiles."""

import time
from typing import NamedTuple

import numpy as np

from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMModule, vector_type
from shardir.backends.cpu.codegen.target import HostDescription, host_machine
from shardir.backends.cpu.dispatch.program_table import RunProgram, load_program
from shardir.backends.cpu.kernel_api import Kernel, Phase
from shardir.backends.cpu.threads.bulk_copy import copy_phase
from shardir.backends.cpu.threads.memory import allocate
from shardir.backends.cpu.threads.workers import WorkerPool, worker_pool

COPIED_BYTES = 64 << 20
FMA_TASKS = 64
FMA_STEPS_PER_TASK = 1 << 12
FMA_CHAINS = 12
"""Independent sums, which hide the latency of a multiply-add."""
MEASUREMENT_ROUNDS = 25
"""Many short rounds, so that at least one of them runs undisturbed."""


class Roofline(NamedTuple):
    """Peak memory bandwidth of a copy in bytes per second, and float32 operations per second."""

    bandwidth: float
    flops: float

    def seconds(self, nbytes: int, flops: int) -> float:
        """Return the least time for so many bytes and operations."""
        return max(nbytes / self.bandwidth, flops / self.flops)


_rooflines: dict[int, Roofline] = {}


def roofline() -> Roofline:
    """Return the peak performance with all workers, measured once in a tenth of a second."""
    shared = worker_pool()
    found = _rooflines.get(shared.count)
    if found is None:
        found = _rooflines[shared.count] = measure(shared)
    return found


def measure(workers: WorkerPool) -> Roofline:
    """Measure a copy of large buffers, and multiply-adds in registers."""
    lanes = host_machine().lanes(4)  # This machine is measured.
    source, target = allocate(COPIED_BYTES), allocate(COPIED_BYTES)
    np.asarray(source)[...] = 1
    copy = load_program([copy_phase(COPIED_BYTES)], 3, workers)
    fma = load_program(
        [Phase(_fma_kernel(lanes), (FMA_STEPS_PER_TASK,), FMA_TASKS, 1e7)], 3, workers
    )
    moved = 2 * COPIED_BYTES / _min_seconds(copy, source.address, target.address)
    done = (
        2
        * FMA_STEPS_PER_TASK
        * FMA_TASKS
        * FMA_CHAINS
        * lanes
        / _min_seconds(fma, source.address, target.address)
    )
    return Roofline(moved, done)


def _min_seconds(run: RunProgram, *addresses: int) -> float:
    """Return the seconds of the fastest round."""
    times = []
    for _ in range(MEASUREMENT_ROUNDS):
        begin = time.perf_counter()
        run(*addresses)
        times.append(time.perf_counter() - begin)
    return min(times)


def _fma_kernel(lanes: int) -> Kernel:
    name = f"shardir_roofline_multiply_{lanes}"
    type = vector_type("float", lanes)

    def text(machine: HostDescription) -> str:
        module = LLVMModule(machine)
        f = LLVMFunction(module, name, ["ptr", "ptr", "i64", "i64"])
        bases, record, task, _ = f.params
        count = f.load(record, "i64")
        source, target = (f.load(f.offset(bases, 8 * slot), "ptr") for slot in (1, 2))
        factor = f.load(source, type)
        sums = [f.variable(type, 0) for _ in range(FMA_CHAINS)]
        with f.loop(0, count):
            for each in sums:
                each.set(f.fma(each.get(), factor, factor))
        total = sums[0].get()
        for each in sums[1:]:
            total = total + each.get()
        f.store(total, f.offset(target, task * (4 * lanes)))
        f.ret()
        return module.text()

    return Kernel(name, text)
