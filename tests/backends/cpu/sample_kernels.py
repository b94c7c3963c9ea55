"""Simple exact kernels for tests, some of which record the worker of each task."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMModule, LLVMValue
from shardir.backends.cpu.codegen.target import HostDescription
from shardir.backends.cpu.kernel_api import Kernel

Body = Callable[[LLVMFunction, LLVMValue, LLVMValue, LLVMValue, LLVMValue], None]


def make_kernel(name: str, body: Body) -> Kernel:
    """Return a kernel of `body(function, bases, record, task, worker)`."""

    def text(machine: HostDescription) -> str:
        module = LLVMModule(machine)
        f = LLVMFunction(module, name, ["ptr", "ptr", "i64", "i64"])
        body(f, *f.params)
        f.ret()
        return module.text()

    return Kernel(name, text)


def _multiply_add(
    f: LLVMFunction, bases: LLVMValue, record: LLVMValue, task: LLVMValue, worker: LLVMValue
) -> None:
    base = f.load(f.offset(bases, 8), "ptr")
    at = f.offset(base, task, "i64")
    f.store(f.load(at, "i64") * 3 + f.load(record, "i64"), at)


def _neighbor_hash(
    f: LLVMFunction, bases: LLVMValue, record: LLVMValue, task: LLVMValue, worker: LLVMValue
) -> None:
    slot = f.load(record, "i64"), f.load(f.offset(record, 8), "i64")
    source, target = (f.load(f.offset(bases, s, "ptr"), "ptr") for s in slot)
    count = f.load(f.offset(record, 16), "i64")
    rounds = f.load(f.offset(record, 24), "i64")
    neighbor = f.load(f.offset(source, (task + 1) % count, "i64"), "i64")
    value = f.variable("i64", f.load(f.offset(source, task, "i64"), "i64") * 3 + neighbor)
    with f.loop(0, rounds) as i:
        value.set((value.get() ^ i) * 0x5851F42D4C957F2D)
    f.store(value.get(), f.offset(target, task, "i64"))


def _scratch_sum(
    f: LLVMFunction, bases: LLVMValue, record: LLVMValue, task: LLVMValue, worker: LLVMValue
) -> None:
    """Fill words of the worker's scratch memory from the task index, and sum them."""
    worker_scratch = f.offset(f.load(bases, "ptr"), worker * (4 << 20))
    count = f.load(record, "i64")
    with f.loop(0, count) as i:
        f.store(task + i, f.offset(worker_scratch, i, "i64"))
    total = f.variable("i64", 0)
    with f.loop(0, count) as i:
        total.set(total.get() + f.load(f.offset(worker_scratch, i, "i64"), "i64"))
    f.store(total.get(), f.offset(f.load(f.offset(bases, 8), "ptr"), task, "i64"))


def _worker_index(
    f: LLVMFunction, bases: LLVMValue, record: LLVMValue, task: LLVMValue, worker: LLVMValue
) -> None:
    """Run the number of steps in the record, then write the index of the worker."""
    slow_sum = f.variable("i64", 1)
    with f.loop(0, f.load(record, "i64")) as i:
        slow_sum.set((slow_sum.get() ^ i) * 0x5851F42D4C957F2D)
    zero = f.select(slow_sum.get().is_("eq", 0), f.value(1, "i64"), 0)
    f.store(worker + zero, f.offset(f.load(f.offset(bases, 8), "ptr"), task, "i64"))


MULTIPLY_ADD = make_kernel("sample_multiply_add", _multiply_add)
"""word[task] = 3 * word[task] + record[0]."""
NEIGHBOR_HASH = make_kernel("sample_mix", _neighbor_hash)
"""target[task] = hash(3 * source[task] + source[task + 1]); the record contains the slots of source
and target, the number of tasks, and the number of hash rounds."""
SCRATCH_SUM = make_kernel("sample_scratch", _scratch_sum)
"""word[task] = the sum of task + i for i < record[0], computed in scratch memory."""
WORKER_INDEX = make_kernel("sample_who", _worker_index)
"""word[task] = the index of the worker, after record[0] steps of a slow sum."""

HASH_MULTIPLIER = np.uint64(0x5851F42D4C957F2D)


def neighbor_hash(source: npt.NDArray[np.uint64], rounds: int) -> npt.NDArray[np.uint64]:
    """Return the result of `NEIGHBOR_HASH`."""
    value = source * np.uint64(3) + np.roll(source, -1)
    for i in range(rounds):
        value = (value ^ np.uint64(i)) * HASH_MULTIPLIER
    return value
