"""Costs of a program by line of the user's program."""

from collections.abc import Callable, Iterator

from shardir import ops
from shardir.cost.op_cost import Cost, cost_of, cost_of_block
from shardir.ir.module import Block, Loc, Op

LocationOf = Callable[[Op], Loc | None]


def cost_by_line(block: Block, location: LocationOf) -> dict[tuple[str, int] | None, Cost]:
    """Return the cost of the operations of a block by (file, line), `None` for those without one.

    Operations inside of blocks count with their own lines, as often as `cost_of` counts them; the
    sum of all lines is the cost of the block.
    """
    result: dict[tuple[str, int] | None, Cost] = {}
    for op, times in _counted_operations(block, 1):
        loc = location(op)
        line = None if loc is None else (loc.file, loc.line)
        result[line] = result.get(line, Cost()) + cost_of(op) * times
    return result


def _counted_operations(block: Block, times: int) -> Iterator[tuple[Op, int]]:
    """Yield the operations without blocks, and how often each counts."""
    for op in block.ops:
        if not op.blocks:
            yield op, times
        elif op.spec is ops.case:
            yield from _counted_operations(_most_expensive(op), times)
        else:
            inner_times = times * op.attrs.get("length", 1)
            for inner in op.blocks:
                yield from _counted_operations(inner, inner_times)


def _most_expensive(op: Op) -> Block:
    """Return the branch of a `case` that `cost_of` counts."""

    def expense(block: Block) -> tuple[int, int, int]:
        cost = cost_of_block(block)
        return cost.flops, cost.sent, cost.memory

    return max(op.blocks, key=expense)
