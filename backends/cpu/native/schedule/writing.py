"""Operations that write a part of their first operand: into its own memory where nobody sees it.

A loop that fills an array element by element would copy all of it each round otherwise.
"""

from collections.abc import Sequence

from shardir.backends.cpu.native.schedule.views import moves_nothing
from shardir.ir import Block, Op, Value
from shardir.ops.fused import fused

IN_PLACE = frozenset({"dynamic_update_slice", "scatter"})
"""Operations that leave most of their first operand as it is, and can leave it where it is."""


def written_over(block: Block, param: Value, made: Value) -> Sequence[Value] | None:
    """The values from `param` (without it) to `made` that one memory may hold after each other.

    `None` unless each is the one before with a part written, and nobody looks at that one, nor at
    what may be a view of it, once the part is written.
    """
    makers = {result: op for op in block.ops for result in op.results}
    chain: list[Value] = []
    value = made
    while value is not param:
        op = makers.get(value)
        if op is None or op.name not in IN_PLACE:
            return None
        chain.insert(0, value)
        value = op.operands[0]
    age = {param: 0} | {value: i + 1 for i, value in enumerate(chain)}
    written = 0
    for op in block.ops:
        used = [age[value] for value in op.uses() if value in age]
        if min(used, default=written) < written:
            return None
        if op.results and op.results[0] in chain:
            if any(value in age for value in op.operands[1:]):
                return None
            written += 1
        elif used and _may_show(op):
            age.update((result, min(used)) for result in op.results)
    if any(value in age and value is not made for value in block.returns):
        return None
    return chain if list(block.returns).count(made) == 1 else None


def _may_show(op: Op) -> bool:
    """Whether results may be views of operands: of loops and branches, not of what is fused."""
    return moves_nothing(op) or (bool(op.blocks) and op.spec is not fused)
