"""Copy large memory blocks on all workers with non-temporal stores."""

from functools import lru_cache

from shardir.backends.cpu.native.data import Kernel, Phase
from shardir.backends.cpu.native.llvm.hints import fence
from shardir.backends.cpu.native.llvm.text import Function, Module, vector
from shardir.backends.cpu.native.runtime.program import Run, load

LINE = 64
EACH = 1 << 20
"""Bytes that one task copies."""
BYTES_PER_NANOSECOND = 15


@lru_cache(64)
def bulk_copy(nbytes: int) -> Run:
    """Return a function that copies `nbytes` from its first address to its second.

    The target must be aligned to a cache line; the two must not overlap.
    """
    return load([copying(nbytes)], 3)


def copying(nbytes: int) -> Phase:
    """Return the phase that copies `nbytes` from slot 1 to slot 2."""
    cost = nbytes / BYTES_PER_NANOSECOND
    return Phase(COPY, (nbytes, EACH), -(-nbytes // EACH), cost, "copy")


def _text() -> str:
    module = Module()
    f = Function(module, COPY.name, ["ptr", "ptr", "i64", "i64"])
    bases, record, task, _ = f.params
    nbytes, each = (f.load(f.offset(record, 8 * word), "i64") for word in range(2))
    source, target = (f.load(f.offset(bases, 8 * slot), "ptr") for slot in (1, 2))
    start = task * each
    end = f.least(start + each, nbytes)
    whole = start + ((end - start) & -LINE)
    line = vector("i8", LINE)
    with f.loop(start, whole, LINE) as i:
        f.store(f.load(f.offset(source, i), line, 1), f.offset(target, i), LINE, streaming=True)
    with f.loop(whole, end) as i:
        f.store(f.load(f.offset(source, i), "i8"), f.offset(target, i))
    fence(f)
    f.leave()
    return module.text()


COPY = Kernel("bulk_copy", _text)
