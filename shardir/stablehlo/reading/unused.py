"""Removal of operations that the reader has made unused."""

from collections.abc import Mapping

from shardir.ir.module import Block, Op, Value


def remove_unused(body: Block, spare: set[Op], makers: Mapping[Value, Op]) -> Block:
    """Return the body without unused operations among `spare`."""
    here: set[Op] = set()
    uses: dict[Value, int] = {}
    for block in _blocks(body):
        here.update(spare.intersection(block.ops))
        for op in block.ops:
            for value in op.operands:
                uses[value] = uses.get(value, 0) + 1
        for value in block.returns:
            uses[value] = uses.get(value, 0) + 1
    dropped: set[Op] = set()
    waiting = [op for op in here if not any(uses.get(v) for v in op.results)]
    while waiting:
        op = waiting.pop()
        dropped.add(op)
        for value in op.operands:
            uses[value] -= 1
            maker = makers.get(value)
            if maker in here and not any(uses.get(v) for v in maker.results):
                waiting.append(maker)
    return _prune(body, dropped) if dropped else body


def _blocks(block: Block) -> list[Block]:
    inner = [each for op in block.ops for b in op.blocks for each in _blocks(b)]
    return [block, *inner]


def _prune(block: Block, dropped: set[Op]) -> Block:
    ops = []
    for op in block.ops:
        if op in dropped:
            continue
        blocks = tuple(_prune(inner, dropped) for inner in op.blocks)
        ops.append(op if not blocks else Op(op.spec, op.operands, op.results, op.attrs, blocks,
                                            op.loc, op.why))  # fmt: skip
    return Block(block.params, tuple(ops), block.returns)
