"""What this machine cannot run, found before anything is allocated."""

import os

from shardir.errors import InterpretError
from shardir.ir import Block, Module, Value
from shardir.memory import memory_of_module
from shardir.sizes import show_bytes

MOST_DEVICES = 4096
"""Devices of a mesh that one process runs a program for."""
MOST_DIMENSIONS = 64
"""Of an array of NumPy."""


def memory_of_machine() -> int | None:
    """The bytes of physical memory; `None` where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


def check_runnable(module: Module, memory: int | None = None) -> None:
    """Raise `InterpretError` for a program that cannot run in this process.

    That is one over too many devices, of arrays that NumPy does not have, or that needs more than
    `memory` bytes (all that the machine has): its whole arguments and results, or what one device
    holds at once. A program that passes may still need more.
    """
    main = module.main
    for mesh in module.meshes:
        if mesh.size > MOST_DEVICES:
            raise InterpretError(
                f"mesh @{mesh.name} has {mesh.size} devices, and one process runs programs for at "
                f"most {MOST_DEVICES}; use a smaller mesh"
            )
    for value in _values(main.body):
        if value.type.rank > MOST_DIMENSIONS:
            raise InterpretError(
                f"%{value.name} has {value.type.rank} dimensions, and arrays have at most "
                f"{MOST_DIMENSIONS} when a program runs; merge some by reshape"
            )
    whole = 0
    if main.spmd is not None:
        whole = sum(each.type.nbytes for each in (*main.spmd.params, *main.spmd.results))
    needed = max(whole, memory_of_module(module).peak)
    available = memory_of_machine() if memory is None else memory
    if available is not None and needed > available:
        raise InterpretError(
            f"@{main.name} needs {show_bytes(needed)} of memory, and this machine has "
            f"{show_bytes(available)}; run it on smaller arrays"
        )


def _values(block: Block) -> list[Value]:
    ops = list(block.walk())
    inner = [value for op in ops for each in op.blocks for value in each.params]
    return [*block.params, *inner, *(value for op in ops for value in op.results)]
