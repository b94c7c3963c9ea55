"""What a compiled program costs, in the form that users of JAX know."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shardir.communication import axes_word, collectives, total, totals
from shardir.cost import cost_of_block
from shardir.ir import Module
from shardir.memory import Memory, memory_of_module


@dataclass(frozen=True, slots=True)
class MemoryAnalysis:
    """Bytes that one run holds on each device.

    `temp_size_in_bytes` is the most that is alive at once of what is neither argument nor result,
    `alias_size_in_bytes` what results take of the memory of donated arguments, and
    `peak_memory_in_bytes` arguments, results and temporaries together, without that. Programs are
    not counted: `generated_code_size_in_bytes` is 0.

    What begins with `host` is what this process holds for all of its devices together, where they
    share memory: what they have in common is there once. 0 where each device has its own. What
    NumPy, LAPACK and callbacks take for themselves while they run is not in it.
    """

    argument_size_in_bytes: int
    output_size_in_bytes: int
    temp_size_in_bytes: int
    alias_size_in_bytes: int
    generated_code_size_in_bytes: int
    peak_memory_in_bytes: int
    host_temp_size_in_bytes: int = 0
    host_peak_memory_in_bytes: int = 0


def memory_analysis(
    module: Module, host: Memory | None = None, over: Mapping[int, int] | None = None
) -> MemoryAnalysis:
    """The memory of a per-device program on each device, and of its process if that is known.

    `over` are the results that take the memory of donated arguments, and their bytes in this
    process.
    """
    memory, over = memory_of_module(module), over or {}
    results = module.main.body.returns
    aliased = sum(results[number].type.nbytes for number in over)
    return MemoryAnalysis(
        memory.arguments,
        memory.results,
        memory.temporaries,
        aliased,
        0,
        memory.peak - aliased,
        0 if host is None else host.temporaries,
        0 if host is None else host.peak - sum(over.values()),
    )


def cost_analysis(module: Module) -> dict[str, Any]:
    """What one run of a per-device program does on each device.

    `flops`: arithmetic on elements; `bytes accessed`: operands and results of all operations;
    `bytes sent`: to other devices, in total and `by kind` of collective and `by axes`. A loop
    counts as often as it runs, a `while` once, a branch as its most expensive.
    """
    cost = cost_of_block(module.main.body)
    found = collectives(module)

    def sent(groups: Any) -> dict[str, int]:
        return {word: group.sent for word, group in groups.items()}

    return {
        "flops": cost.flops,
        "bytes accessed": cost.memory,
        "bytes sent": total(found).sent,
        "bytes sent by kind": sent(totals(found, lambda each: each.kind)),
        "bytes sent by axes": sent(totals(found, axes_word)),
    }
