"""Trip counts of loops."""

from collections.abc import Iterable, Iterator, Mapping

from shardir import ops
from shardir.ir.module import Block, Op, Value

Definitions = Mapping[Value, Op]

_IDENTITIES = (ops.reshard, ops.sharding_constraint, ops.stop_gradient)


def find_definitions(block: Block) -> Definitions:
    """Return the operation that defines each value in a block and in its nested blocks."""
    return {result: op for op in _all_ops(block.ops) for result in op.results}


def trip_count(op: Op, definitions: Definitions) -> int | None:
    """Return how often a loop runs its body; `None` if the number is not a constant.

    A `while` has a constant number if its condition compares a carried value with a constant, the
    value starts as a constant, and the body adds a constant to it.
    """
    if op.spec is ops.scan:
        length: int = op.attrs["length"]
        return length
    if op.spec is not ops.while_:
        return 1
    condition, body = op.blocks
    compare = definitions.get(condition.returns[0])
    if compare is None or compare.spec is not ops.lt:
        return None
    index, limit = compare.operands
    if index not in condition.params:
        return None
    position = condition.params.index(index)
    start = _constant(op.operands[position], definitions)
    stop = _constant(limit, definitions)
    step = _step(body, position, definitions)
    if start is None or stop is None or step is None or step <= 0:
        return None
    return max(-(-(stop - start) // step), 0)


def _step(body: Block, position: int, definitions: Definitions) -> int | None:
    """Return the constant that a body adds to one of its carried values."""
    add = definitions.get(body.returns[position])
    if add is None or add.spec is not ops.add:
        return None
    for one, other in (add.operands, add.operands[::-1]):
        if one is body.params[position]:
            return _constant(other, definitions)
    return None


def _constant(value: Value, definitions: Definitions) -> int | None:
    op = definitions.get(value)
    while op is not None and op.spec in _IDENTITIES:
        op = definitions.get(op.operands[0])
    if op is None or op.spec is not ops.constant or op.result.type.rank:
        return None
    number = op.attrs["value"]
    return number if isinstance(number, int) and not isinstance(number, bool) else None


def _all_ops(some: Iterable[Op]) -> Iterator[Op]:
    for op in some:
        yield op
        for block in op.blocks:
            yield from _all_ops(block.ops)
