"""Memory requirements of programs, computed from the live ranges of values."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from shardir.ir.module import Block, Module, Op, Value

Storage = Mapping[Value, Value]
"""For each value that has no memory of its own, the value whose memory it shares."""
BytesInside = Mapping[Op, int]
"""The bytes that operations hold while they run, in addition to their operands, results and
blocks."""


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


@dataclass(frozen=True, slots=True)
class MemoryTimeline:
    """Live bytes of a program while each operation of its first function runs.

    `alive` has an entry for each operation of the body, without the arguments of the program.
    `position` is the first operation at which most bytes are alive, and `values` are the values of
    the body that are alive then, in the order of their definitions; `inside` are the bytes that the
    blocks of that operation hold.
    """

    arguments: int
    alive: tuple[int, ...]
    position: int
    values: tuple[Value, ...]
    inside: int


def estimate_memory(module: Module, inside: BytesInside | None = None) -> MemoryEstimate:
    """Return the memory of the module's first function.

    A value is live from the operation that defines it to its last use, a result to the end. No
    operation works in place, so its operands and results are live together; the memory of a block
    is live while its operation runs.
    """
    body = module.main.body
    arguments = sum(value.type.nbytes for value in body.params)
    results = sum(value.type.nbytes for value in body.returns)
    alive = max(_live_bytes(body, {}, inside or {}), default=0)
    peak = arguments + max(alive, results)
    return MemoryEstimate(arguments, results, peak - arguments - results, peak)


def memory_timeline(module: Module, storage: Storage | None = None) -> MemoryTimeline:
    """Return the live bytes over the operations of the module's first function.

    Values in `storage` share the memory of others, which thus lives as long as all of them.
    """
    return block_timeline(module.main.body, storage or {})


def block_timeline(
    body: Block, storage: Storage, inside: BytesInside | None = None
) -> MemoryTimeline:
    """Return the live bytes over the operations of a block, whose parameters are its arguments."""
    alive = _live_bytes(body, storage, inside or {})
    position = alive.index(max(alive)) if alive else 0
    last = _last_uses(body, storage)
    values = [
        value
        for i, op in enumerate(body.ops[: position + 1])
        for value in op.results
        if value not in storage and (last[value] >= position or i == position)
    ]
    captured_bytes = sum(value.type.nbytes for value in values)
    return MemoryTimeline(
        sum(value.type.nbytes for value in body.params if value not in storage),
        tuple(alive),
        position,
        tuple(values),
        alive[position] - captured_bytes if alive else 0,
    )


def used_by(op: Op) -> Iterable[Value]:
    """Return the values that an operation uses; the block of a fused operation captures none."""
    return op.operands if op.spec.is_loop_nest else op.uses()


def _last_uses(block: Block, storage: Storage) -> dict[Value, int]:
    """Return the index of the last operation that uses the memory of each value; returned values
    are used after all operations."""
    last: dict[Value, int] = {}
    for i, op in enumerate(block.ops):
        for value in (*used_by(op), *op.results):
            last[storage.get(value, value)] = i
    for value in block.returns:
        last[storage.get(value, value)] = len(block.ops)
    return last


def _live_bytes(block: Block, storage: Storage, inside: BytesInside) -> list[int]:
    """Return, for each operation, the live bytes of the values that a block defines."""
    ending: dict[int, list[Value]] = {}
    defined = {value for op in block.ops for value in op.results if value not in storage}
    for value, i in _last_uses(block, storage).items():
        if value in defined:
            ending.setdefault(i, []).append(value)
    alive = 0
    result: list[int] = []
    for i, op in enumerate(block.ops):
        alive += sum(value.type.nbytes for value in op.results if value in defined)
        result.append(alive + nested_bytes(op, storage) + inside.get(op, 0))
        alive -= sum(value.type.nbytes for value in ending.get(i, ()))
    return result


def nested_bytes(op: Op, storage: Storage) -> int:
    """Return the bytes that the blocks of an operation hold while it runs."""
    # A fused operation is one loop nest, which has no intermediate arrays.
    blocks = () if op.spec.is_loop_nest else op.blocks
    return max((_peak_bytes_of_nested(inner, storage) for inner in blocks), default=0)


def _peak_bytes_of_nested(block: Block, storage: Storage) -> int:
    """Return the memory of a nested block, including its parameters."""
    peak = max(_live_bytes(block, storage, {}), default=0)
    return sum(value.type.nbytes for value in block.params if value not in storage) + peak
