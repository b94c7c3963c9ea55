"""Checks, before any allocation, that this machine can run a program."""

import os

from shardir.cost.memory import estimate_memory
from shardir.display.byte_sizes import show_bytes
from shardir.errors import InterpretError
from shardir.ir.module import Block, Module, Value

MAX_DEVICES = 4096
"""The maximum number of mesh devices for which one process runs a program."""
MAX_RANK = 64
"""The maximum rank of a NumPy array."""


def physical_memory_bytes() -> int | None:
    """Return the bytes of physical memory; `None` if the system does not report them."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


def check_runnable(module: Module, memory: int | None = None) -> None:
    """Raise `InterpretError` for a program that cannot run in this process.

    The check covers the number of devices, the rank of arrays, and the memory of the global
    arguments and results and of the live values of one device, compared with `memory` bytes (by
    default the physical memory). A program that passes may still need more.
    """
    main = module.main
    for mesh in module.meshes:
        if mesh.size > MAX_DEVICES:
            raise InterpretError(
                f"mesh @{mesh.name} has {mesh.size} devices, and one process runs programs for at "
                f"most {MAX_DEVICES}; use a smaller mesh"
            )
    for value in _values(main.body):
        if value.type.rank > MAX_RANK:
            raise InterpretError(
                f"%{value.name} has {value.type.rank} dimensions, and arrays have at most "
                f"{MAX_RANK} when a program runs; merge some by reshape"
            )
    global_bytes = 0
    if main.spmd is not None:
        global_bytes = sum(each.type.nbytes for each in (*main.spmd.params, *main.spmd.results))
    needed = max(global_bytes, estimate_memory(module).peak)
    available = physical_memory_bytes() if memory is None else memory
    if available is not None and needed > available:
        raise InterpretError(
            f"@{main.name} needs {show_bytes(needed)} of memory, and this machine has "
            f"{show_bytes(available)}; run it on smaller arrays"
        )


def _values(block: Block) -> list[Value]:
    ops = list(block.walk())
    inner = [value for op in ops for each in op.blocks for value in each.params]
    return [*block.params, *inner, *(value for op in ops for value in op.results)]
