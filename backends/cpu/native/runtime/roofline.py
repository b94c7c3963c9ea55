"""The peak performance of this machine, measured with all workers: the roofline of profiles."""

import time
from typing import NamedTuple

import numpy as np

from shardir.backends.cpu.native.data import Kernel, Phase
from shardir.backends.cpu.native.llvm.target import host
from shardir.backends.cpu.native.llvm.text import Function, Module, vector
from shardir.backends.cpu.native.runtime.bulk import copying
from shardir.backends.cpu.native.runtime.memory import allocate
from shardir.backends.cpu.native.runtime.program import Run, load
from shardir.backends.cpu.native.runtime.workers import Pool, pool

COPIED_BYTES = 64 << 20
TASKS = 64
STEPS = 1 << 12
CHAINS = 12
"""Independent sums, which hide the latency of a multiply-add."""
ROUNDS = 25
"""Many short rounds, so that at least one of them runs undisturbed."""


class Roofline(NamedTuple):
    """Peak memory bandwidth of a copy in bytes per second, and float32 operations per second."""

    bandwidth: float
    flops: float

    def seconds(self, nbytes: int, flops: int) -> float:
        """Return the least time for so many bytes and operations."""
        return max(nbytes / self.bandwidth, flops / self.flops)


_measured: dict[int, Roofline] = {}


def roofline(workers: Pool | None = None) -> Roofline:
    """Return the peak performance with a pool's workers, measured once in a tenth of a second."""
    shared = pool() if workers is None else workers
    found = _measured.get(shared.count)
    if found is None:
        found = _measured[shared.count] = measure(shared)
    return found


def measure(workers: Pool) -> Roofline:
    """Measure a copy of large buffers, and multiply-adds in registers."""
    lanes = host().lanes(4)
    source, target = allocate(COPIED_BYTES), allocate(COPIED_BYTES)
    np.asarray(source)[...] = 1
    copy = load([copying(COPIED_BYTES)], 3, workers)
    fma = load([Phase(_multiply(lanes), (STEPS,), TASKS, 1e7)], 3, workers)
    moved = 2 * COPIED_BYTES / _least(copy, source.address, target.address)
    done = 2 * STEPS * TASKS * CHAINS * lanes / _least(fma, source.address, target.address)
    return Roofline(moved, done)


def _least(run: Run, *addresses: int) -> float:
    """Return the seconds of the fastest round."""
    times = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        run(*addresses)
        times.append(time.perf_counter() - begin)
    return min(times)


def _multiply(lanes: int) -> Kernel:
    name = f"shardir_roofline_multiply_{lanes}"
    type = vector("float", lanes)

    def text() -> str:
        module = Module()
        f = Function(module, name, ["ptr", "ptr", "i64", "i64"])
        bases, record, task, _ = f.params
        count = f.load(record, "i64")
        source, target = (f.load(f.offset(bases, 8 * slot), "ptr") for slot in (1, 2))
        factor = f.load(source, type)
        sums = [f.variable(type, 0) for _ in range(CHAINS)]
        with f.loop(0, count):
            for each in sums:
                each.set(f.fma(each.get(), factor, factor))
        total = sums[0].get()
        for each in sums[1:]:
            total = total + each.get()
        f.store(total, f.offset(target, task * (4 * lanes)))
        f.leave()
        return module.text()

    return Kernel(name, text)
