"""How much memory a program needs, by the lives of its values."""

from dataclasses import dataclass

from shardir.ir import Block, Module, Value


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes that one run of a program holds; of a per-device program, on each device.

    `arguments` and `results` are held by the caller; a result that is an argument counts once
    more, since the caller gets an array of its own. `peak` is the most that is alive at any time,
    arguments included, and `temporaries` what of it is neither an argument nor a result.
    """

    arguments: int
    results: int
    temporaries: int
    peak: int


def memory_of_module(module: Module) -> Memory:
    """The memory of the module's first function.

    A value is alive from the operation that makes it to the last that uses it, a result to the
    end. No operation works in place, so operands and results of one are alive together; what a
    block of a loop or branch needs is alive while its operation runs.
    """
    body = module.main.body
    arguments = sum(value.type.nbytes for value in body.params)
    results = sum(value.type.nbytes for value in body.returns)
    alive = _peak(body)
    peak = arguments + max(alive, results)
    return Memory(arguments, results, peak - arguments - results, peak)


def _peak(block: Block) -> int:
    """The most bytes alive at once of what a block makes itself."""
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
        inside = max((_inner(inner) for inner in op.blocks), default=0)
        peak = max(peak, alive + inside)
        alive -= sum(value.type.nbytes for value in ending.get(i, ()))
    return peak


def _inner(block: Block) -> int:
    """A block of an operation: its parameters are values of its own, too."""
    return sum(value.type.nbytes for value in block.params) + _peak(block)
