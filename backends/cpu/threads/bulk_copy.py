"""Copy large memory blocks on all workers with non-temporal stores."""

from functools import lru_cache

from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMModule, vector_type
from shardir.backends.cpu.codegen.memory_hints import store_fence
from shardir.backends.cpu.codegen.target import CACHE_LINE_BYTES, HostDescription
from shardir.backends.cpu.dispatch.program_table import RunProgram, load_program
from shardir.backends.cpu.kernel_api import Kernel, Phase

BYTES_PER_TASK = 1 << 20
"""Bytes that one task copies."""
COPY_BYTES_PER_NANOSECOND = 15


@lru_cache(64)
def bulk_copy(nbytes: int) -> RunProgram:
    """Return a function that copies `nbytes` from its first address to its second.

    The target must be aligned to a cache line; the two must not overlap.
    """
    return load_program([copy_phase(nbytes)], 3)


def copy_phase(nbytes: int) -> Phase:
    """Return the phase that copies `nbytes` from slot 1 to slot 2."""
    cost = nbytes / COPY_BYTES_PER_NANOSECOND
    return Phase(COPY_KERNEL, (nbytes, BYTES_PER_TASK), -(-nbytes // BYTES_PER_TASK), cost, "copy")


def _kernel_text(machine: HostDescription) -> str:
    module = LLVMModule(machine)
    f = LLVMFunction(module, COPY_KERNEL.name, ["ptr", "ptr", "i64", "i64"])
    bases, record, task, _ = f.params
    nbytes, each = (f.load(f.offset(record, 8 * word), "i64") for word in range(2))
    source, target = (f.load(f.offset(bases, 8 * slot), "ptr") for slot in (1, 2))
    start = task * each
    end = f.umin(start + each, nbytes)
    whole = start + ((end - start) & -CACHE_LINE_BYTES)
    line = vector_type("i8", CACHE_LINE_BYTES)
    with f.loop(start, whole, CACHE_LINE_BYTES) as i:
        f.store(
            f.load(f.offset(source, i), line, 1),
            f.offset(target, i),
            CACHE_LINE_BYTES,
            streaming=True,
        )
    with f.loop(whole, end) as i:
        f.store(f.load(f.offset(source, i), "i8"), f.offset(target, i))
    store_fence(f)
    f.ret()
    return module.text()


COPY_KERNEL = Kernel("bulk_copy", _kernel_text)
