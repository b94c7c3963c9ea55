"""Lower loops and branches.

A carried value is read from one buffer and written to another; after each iteration the two swap,
so that nothing is copied. A scan writes its stacked results row by row in place, and reads its
stacked operands in place.
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
"""Operations with blocks that can write their results into given targets."""


def _carried(
    lowering: "Lowering", block: Block, inits: Sequence[Value], items: list[Item]
) -> tuple[list[View], list[View]]:
    """Return the views where each carried value is read, and where its successor is written.

    A value that an iteration returns unchanged, or of which it updates a part, has one buffer; all
    others have two.
    """
    reads: list[View] = []
    writes: list[View] = []
    for param, successor, init in zip(block.params, block.returns, inits, strict=False):
        start = lowering.views[init]
        lowering.use(start)
        if successor is param:
            read = write = start
        else:
            read = write = lowering.buffer(param, pinned=True)
            chain = written_over(block, param, successor)
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
    """Return the pairs of slots that swap. Either of a pair may hold the value after the loop."""
    pairs = []
    for read, write in zip(reads, writes, strict=True):
        if read.slot != write.slot:
            lowering.use(read, write)
            lowering.buffers[write.slot].partner = lowering.buffers[read.slot]
            pairs.append((read.slot, write.slot))
    return tuple(pairs)


def _row(lowering: "Lowering", value: Value, stacked: View, rows: list[Rows]) -> View:
    """Return a view of one row of a stacked array."""
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
    row_views = []
    for value, stacked in zip(body.returns[count:], op.results[count:], strict=True):
        stacked_view = lowering.buffer(stacked)
        lowering.views[stacked] = stacked_view
        lowering.use(stacked_view)
        row_views.append(_row(lowering, value, stacked_view, rows))
    lowering.position += 1
    start = lowering.position
    inner, _ = lowering.block(body, [*writes, *row_views])
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
    condition_items, _ = lowering.block(condition, [going])
    lowering.use(going)
    inner, _ = lowering.block(body, writes)
    lowering.position += 1
    pairs = _turned(lowering, reads, writes)
    lowering.hold(start)
    lowering.use(going)
    lowering.views.update(zip(op.results, reads, strict=True))
    items.append(While(op, tuple(condition_items), going, pairs, tuple(inner)))
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
