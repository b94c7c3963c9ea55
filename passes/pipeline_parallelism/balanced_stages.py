"""Divide a block without marks into stages of about equal cost that send little."""

from collections.abc import Sequence
from itertools import accumulate

from shardir.cost.op_cost import cost_of
from shardir.ir.module import Block, Op, Value

BALANCE_SLACK = 0.25
"""The largest distance of a boundary from its ideal place, as a fraction of the cost of a stage."""


def balance_stages(block: Block, batched: Sequence[Value], count: int) -> dict[Op, int | None]:
    """Return the stage of each operation for `count` stages.

    The stages are consecutive parts of the block. Each boundary is the place near its ideal one, at
    which the costs of all stages are equal, where the fewest bytes are sent. `None`: the operation
    does not depend on a value in `batched`, and each stage that needs it computes it. Fewer stages
    than `count` are made if the block has too few operations.
    """
    moving = set(batched)
    for op in block.ops:
        if any(value in moving for value in op.uses()):
            moving.update(op.results)
    ops = [op for op in block.ops if any(value in moving for value in op.results)]
    costs = [_cost(op) for op in ops]
    until = [0.0, *accumulate(costs)]
    sent = _sent_bytes(ops)
    cuts: list[int] = []
    for boundary in range(1, count):
        ideal = until[-1] * boundary / count
        slack = BALANCE_SLACK * until[-1] / count
        first = cuts[-1] + 1 if cuts else 1
        places = range(first, len(ops) - (count - 1 - boundary))
        near = [i for i in places if abs(until[i] - ideal) <= slack]
        chosen = near or sorted(places, key=lambda i: abs(until[i] - ideal))[:1]
        cuts += [min(chosen, key=lambda i: (sent[i], abs(until[i] - ideal)))] if chosen else []
    stage_of = {op: sum(position <= i for position in cuts) for i, op in enumerate(ops)}
    return {op: stage_of.get(op) for op in block.ops}


def _cost(op: Op) -> float:
    """Return the operations and the bytes that an operation costs."""
    cost = cost_of(op)
    return float(cost.flops + cost.memory)


def _sent_bytes(ops: Sequence[Op]) -> list[int]:
    """Return the bytes of the values that operations before each place give to those after it."""
    first = {value: i for i, op in enumerate(ops) for value in op.results}
    last: dict[Value, int] = {}
    for i, op in enumerate(ops):
        last.update((value, i) for value in op.uses() if value in first)
    changes = [0] * (len(ops) + 1)
    for value, end in last.items():
        changes[first[value] + 1] += value.type.nbytes
        changes[end + 1] -= value.type.nbytes
    return [*accumulate(changes)]
