"""Memory requirements of programs, computed from the live ranges of values."""

from dataclasses import dataclass

from shardir.ir.module import Block, Module, Value


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Bytes that one run of a program holds; for a per-device program, on each device.

    The caller holds `arguments` and `results`; a result that is an argument counts again, because
    the caller receives a copy. `peak` is the maximum number of live bytes including arguments, and
    `temporaries` is the part of it that is neither argument nor result.
    """

    arguments: int
    results: int
    temporaries: int
    peak: int


def estimate_memory(module: Module) -> MemoryEstimate:
    """Return the memory of the module's first function.

    A value is live from the operation that defines it to its last use, a result to the end. No
    operation works in place, so its operands and results are live together; the memory of a block
    is live while its operation runs.
    """
    body = module.main.body
    arguments = sum(value.type.nbytes for value in body.params)
    results = sum(value.type.nbytes for value in body.returns)
    alive = _peak_bytes(body)
    peak = arguments + max(alive, results)
    return MemoryEstimate(arguments, results, peak - arguments - results, peak)


def _peak_bytes(block: Block) -> int:
    """Return the maximum number of live bytes of the values that a block defines."""
    last: dict[Value, int] = {}
    for i, op in enumerate(block.ops):
        for value in (*op.uses(), *op.results):
            last[value] = i
    for value in block.returns:
        last[value] = len(block.ops)
    ending: dict[int, list[Value]] = {}
    made = {value for op in block.ops for value in op.results}
    for value, i in last.items():
        if value in made:
            ending.setdefault(i, []).append(value)
    alive = peak = 0
    for i, op in enumerate(block.ops):
        alive += sum(value.type.nbytes for value in op.results)
        inside = max((_peak_bytes_of_nested(inner) for inner in op.blocks), default=0)
        peak = max(peak, alive + inside)
        alive -= sum(value.type.nbytes for value in ending.get(i, ()))
    return peak


def _peak_bytes_of_nested(block: Block) -> int:
    """Return the memory of a nested block, including its parameters."""
    return sum(value.type.nbytes for value in block.params) + _peak_bytes(block)
