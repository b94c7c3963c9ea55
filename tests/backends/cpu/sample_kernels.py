"""Kernels to run: simple, exact, and telling who did what."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMModule, LLVMValue
from shardir.backends.cpu.kernel_api import Kernel

Body = Callable[[LLVMFunction, LLVMValue, LLVMValue, LLVMValue, LLVMValue], None]


def kernel(name: str, body: Body) -> Kernel:
    """A kernel of `body(function, bases, record, task, worker)`."""

    def text() -> str:
        module = LLVMModule()
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


def _mix(
    f: LLVMFunction, bases: LLVMValue, record: LLVMValue, task: LLVMValue, worker: LLVMValue
) -> None:
    slot = f.load(record, "i64"), f.load(f.offset(record, 8), "i64")
    source, target = (f.load(f.offset(bases, s, "ptr"), "ptr") for s in slot)
    count = f.load(f.offset(record, 16), "i64")
    spins = f.load(f.offset(record, 24), "i64")
    neighbour = f.load(f.offset(source, (task + 1) % count, "i64"), "i64")
    value = f.variable("i64", f.load(f.offset(source, task, "i64"), "i64") * 3 + neighbour)
    with f.loop(0, spins) as i:
        value.set((value.get() ^ i) * 0x5851F42D4C957F2D)
    f.store(value.get(), f.offset(target, task, "i64"))


def _scratch(
    f: LLVMFunction, bases: LLVMValue, record: LLVMValue, task: LLVMValue, worker: LLVMValue
) -> None:
    """Fill words of the worker's scratch memory with the task, and add them up again."""
    mine = f.offset(f.load(bases, "ptr"), worker * (4 << 20))
    count = f.load(record, "i64")
    with f.loop(0, count) as i:
        f.store(task + i, f.offset(mine, i, "i64"))
    total = f.variable("i64", 0)
    with f.loop(0, count) as i:
        total.set(total.get() + f.load(f.offset(mine, i, "i64"), "i64"))
    f.store(total.get(), f.offset(f.load(f.offset(bases, 8), "ptr"), task, "i64"))


def _who(
    f: LLVMFunction, bases: LLVMValue, record: LLVMValue, task: LLVMValue, worker: LLVMValue
) -> None:
    """Count up to the record's number, then write which worker it was."""
    spent = f.variable("i64", 1)
    with f.loop(0, f.load(record, "i64")) as i:
        spent.set((spent.get() ^ i) * 0x5851F42D4C957F2D)
    never = f.select(spent.get().is_("eq", 0), f.value(1, "i64"), 0)
    f.store(worker + never, f.offset(f.load(f.offset(bases, 8), "ptr"), task, "i64"))


MULTIPLY_ADD = kernel("sample_multiply_add", _multiply_add)
"""word[task] = 3 * word[task] + record[0]."""
MIX = kernel("sample_mix", _mix)
"""target[task] = 3 * source[task] + source[task + 1], then stirred: record is the slots of source
and target, the number of tasks and how often."""
SCRATCH = kernel("sample_scratch", _scratch)
"""word[task] = the sum of task + i for i < record[0], through scratch memory."""
WHO = kernel("sample_who", _who)
"""word[task] = the worker, after record[0] steps of a slow sum."""

STIR = np.uint64(0x5851F42D4C957F2D)


def mixed(source: npt.NDArray[np.uint64], spins: int) -> npt.NDArray[np.uint64]:
    """What `MIX` computes."""
    value = source * np.uint64(3) + np.roll(source, -1)
    for i in range(spins):
        value = (value ^ np.uint64(i)) * STIR
    return value
