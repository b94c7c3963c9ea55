"""Loops and branches: what is carried round a loop is read from one buffer and written to another.

After each round the two change places, so that nothing is copied. What a scan stacks up is written
row by row where it will be read, and what it takes apart is read where it lies.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from shardir.backends.cpu.native.data import View
from shardir.backends.cpu.native.schedule.items import Branch, Copy, Item, Loop, Rows, While
from shardir.backends.cpu.native.schedule.memory import Buffer, Kind
from shardir.backends.cpu.native.schedule.writing import written_over
from shardir.ir import Block, Op, Value

if TYPE_CHECKING:
    from shardir.backends.cpu.native.schedule.lowering import Lowering

Handler = Callable[["Lowering", Op], Sequence[Item]]

WRITING = frozenset({"case"})
"""Operations with blocks that can write their results where they are wanted."""


def _carried(
    lowering: "Lowering", block: Block, inits: Sequence[Value], items: list[Item]
) -> tuple[list[View], list[View]]:
    """Where each carried value is read, and where its successor is written.

    What a round hands on as it is has one place, and so has what it writes a part of; all others
    have two.
    """
    reads: list[View] = []
    writes: list[View] = []
    for param, made, init in zip(block.params, block.returns, inits, strict=False):
        start = lowering.views[init]
        lowering.use(start)
        if made is param:
            read = write = start
        else:
            read = write = lowering.buffer(param, pinned=True)
            chain = written_over(block, param, made)
            if chain is None:
                write = lowering.buffer(param, pinned=True)
            else:
                lowering.targets.update((value, read) for value in chain)
            lowering.use(read, write)
            items.append(Copy(start, read, f"%{param.name} before the first round"))
        lowering.views[param] = read
        reads.append(read)
        writes.append(write)
    return reads, writes


def _turned(
    lowering: "Lowering", reads: Sequence[View], writes: Sequence[View]
) -> tuple[tuple[int, int], ...]:
    """The pairs that change places. Either of a pair may be the one that is left in the end."""
    pairs = []
    for read, write in zip(reads, writes, strict=True):
        if read.slot != write.slot:
            lowering.use(read, write)
            lowering.buffers[write.slot].partner = lowering.buffers[read.slot]
            pairs.append((read.slot, write.slot))
    return tuple(pairs)


def _row(lowering: "Lowering", value: Value, stacked: View, rows: list[Rows]) -> View:
    """A view of one row of what is stacked."""
    lowering.buffers.append(Buffer(Kind.MOVING, value.type.nbytes, 0, value.name, pinned=True))
    slot = len(lowering.buffers) - 1
    lowering.rows[slot] = stacked
    rows.append(Rows(slot, stacked, stacked.strides[0]))
    return View(slot, 0, stacked.shape[1:], stacked.strides[1:], stacked.dtype)


def _scan(lowering: "Lowering", op: Op) -> list[Item]:
    (body,), count = op.blocks, op.attrs["carries"]
    items: list[Item] = []
    rows: list[Rows] = []
    reads, writes = _carried(lowering, body, op.operands[:count], items)
    for param, stacked in zip(body.params[count:], op.operands[count:], strict=True):
        lowering.views[param] = _row(lowering, param, lowering.views[stacked], rows)
    made = []
    for value, stacked in zip(body.returns[count:], op.results[count:], strict=True):
        whole = lowering.buffer(stacked)
        lowering.views[stacked] = whole
        lowering.use(whole)
        made.append(_row(lowering, value, whole, rows))
    lowering.position += 1
    start = lowering.position
    inner, _ = lowering.block(body, [*writes, *made])
    lowering.position += 1
    lowering.use(*(each.start for each in rows))
    pairs = _turned(lowering, reads, writes)
    lowering.hold(start)
    lowering.views.update(zip(op.results[:count], reads, strict=True))
    backwards = bool(op.attrs.get("reverse"))
    items.append(Loop(op, op.attrs["length"], backwards, tuple(rows), pairs, tuple(inner)))
    return items


def _while(lowering: "Lowering", op: Op) -> list[Item]:
    condition, body = op.blocks
    items: list[Item] = []
    reads, writes = _carried(lowering, body, op.operands, items)
    lowering.views.update(zip(condition.params, reads, strict=True))
    lowering.position += 1
    start = lowering.position
    going = lowering.buffer(condition.returns[0], pinned=True)
    lowering.use(going)
    asked, _ = lowering.block(condition, [going])
    lowering.use(going)
    inner, _ = lowering.block(body, writes)
    lowering.position += 1
    pairs = _turned(lowering, reads, writes)
    lowering.hold(start)
    lowering.use(going)
    lowering.views.update(zip(op.results, reads, strict=True))
    items.append(While(op, tuple(asked), going, pairs, tuple(inner)))
    return items


def _case(lowering: "Lowering", op: Op) -> list[Item]:
    index = lowering.views[op.operands[0]]
    results = [lowering.targets.get(value) or lowering.buffer(value) for value in op.results]
    lowering.use(index, *results)
    start = lowering.position
    branches = []
    for block in op.blocks:
        for param, value in zip(block.params, op.operands[1:], strict=True):
            lowering.views[param] = lowering.views[value]
        lowering.position += 1
        items, _ = lowering.block(block, results)
        branches.append(tuple(items))
    lowering.position += 1
    lowering.use(*results)
    lowering.hold(start)
    lowering.views.update(zip(op.results, results, strict=True))
    return [Branch(op, index, tuple(branches))]


HANDLERS: Mapping[str, Handler] = {"scan": _scan, "while": _while, "case": _case}
