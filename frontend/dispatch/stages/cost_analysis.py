"""Cost and memory of a compiled program, in the format of JAX."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from shardir.cost.communication import (
    Collective,
    CommunicationTotal,
    format_axes,
    list_collectives,
    sum_by,
    sum_collectives,
)
from shardir.cost.memory import BytesInside, MemoryEstimate, estimate_memory
from shardir.cost.op_cost import Cost, cost_of_block
from shardir.frontend.absent_members import WithAbsentMembers
from shardir.frontend.pytree_types import PyTree
from shardir.ir.module import Module


@dataclass(frozen=True, slots=True)
class MemoryAnalysis(WithAbsentMembers):
    """Bytes that one run allocates on each device.

    `alias_size_in_bytes` is the memory of donated arguments that results reuse.
    `peak_memory_in_bytes` is the maximum of simultaneously live values, including all arguments,
    without the reused memory; on one device whose backend plans the memory of a run, it is the
    planned memory. `temp_size_in_bytes` is the memory that this maximum needs in addition to
    arguments and results. Code is not counted: `generated_code_size_in_bytes` is 0.

    The `host` fields are the bytes that this process allocates for all of its devices together,
    where they share memory: shared values count once. They are 0 where each device has separate
    memory. Temporary memory of NumPy, LAPACK and callbacks, and the scratch memory of threads,
    which a process keeps, are not included.
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
    module: Module,
    host: MemoryEstimate | None,
    over: Mapping[int, int],
    inside: BytesInside,
) -> MemoryAnalysis:
    """Return the memory of a per-device program on each device, and of its process if `host` is
    given.

    `over` are the results that reuse the memory of donated arguments, with their bytes in this
    process; `inside` are the bytes that calls of pipelines hold.
    """
    memory = estimate_memory(module, inside)
    if host is not None and all(mesh.size == 1 for mesh in module.meshes):
        memory = replace(memory, temporaries=host.temporaries, peak=host.peak)
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


def cost_analysis(
    module: Module, added: Cost, collectives: Sequence[Collective]
) -> dict[str, PyTree]:
    """Return the cost of one run of a per-device program on each device.

    `added` and `collectives` are the cost and the collectives of the pipelines that it calls.

    `flops`: arithmetic operations; `bytes accessed`: operands and results of all operations; `bytes
    sent`: to other devices, in total and `by kind` of collective and `by axes`. A loop counts as
    often as it runs, a `while` once, a branch as its most expensive block.
    """
    cost = cost_of_block(module.main.body) + added
    found = [*list_collectives(module), *collectives]

    def sent(groups: Mapping[str, CommunicationTotal]) -> dict[str, int]:
        return {word: group.sent for word, group in groups.items()}

    return {
        "flops": cost.flops,
        "bytes accessed": cost.memory,
        "bytes sent": sum_collectives(found).sent,
        "bytes sent by kind": sent(sum_by(found, lambda each: each.kind)),
        "bytes sent by axes": sent(sum_by(found, format_axes)),
    }
