"""Lower loops and branches.

A carried value is read from one buffer and written to another; after each iteration the two swap,
so that nothing is copied. A scan writes its stacked results row by row in place, and reads its
stacked operands in place.
"""

from collections.abc import Callable, Mapping, Sequence

from shardir.backends.cpu.kernel_api import BufferView
from shardir.backends.cpu.schedule.arena import BufferKind, PlannedBuffer
from shardir.backends.cpu.schedule.buffer_views import find_in_place_chain
from shardir.backends.cpu.schedule.items import (
    BranchItem,
    CopyItem,
    Item,
    RowPointer,
    ScanItem,
    WhileItem,
)
from shardir.backends.cpu.schedule.lowering_state import LoweringState
from shardir.ir.module import Block, Op, Value

ControlFlowLowering = Callable[[LoweringState, Op], Sequence[Item]]


def _plan_carried_values(
    lowering: LoweringState, block: Block, inits: Sequence[Value], items: list[Item]
) -> tuple[list[BufferView], list[BufferView]]:
    """Return the views where each carried value is read, and where its successor is written.

    A value that an iteration returns unchanged, or of which it updates a part, has one buffer; all
    others have two.
    """
    reads: list[BufferView] = []
    writes: list[BufferView] = []
    for param, successor, init in zip(block.params, block.returns, inits, strict=False):
        start = lowering.views[init]
        lowering.mark_used(start)
        if successor is param:
            read = write = start
        else:
            read = write = lowering.buffer(param, pinned=True)
            chain = find_in_place_chain(block, param, successor)
            if chain is None:
                write = lowering.buffer(param, pinned=True)
            else:
                lowering.targets.update((value, read) for value in chain)
            lowering.mark_used(read, write)
            items.append(CopyItem(start, read, f"%{param.name} before the first round"))
        lowering.views[param] = read
        reads.append(read)
        writes.append(write)
    return reads, writes


def _swap_pairs(
    lowering: LoweringState, reads: Sequence[BufferView], writes: Sequence[BufferView]
) -> tuple[tuple[int, int], ...]:
    """Return the pairs of slots that swap. Either of a pair may hold the value after the loop."""
    pairs = []
    for read, write in zip(reads, writes, strict=True):
        if read.slot != write.slot:
            lowering.mark_used(read, write)
            lowering.buffers[write.slot].swap_partner = lowering.buffers[read.slot]
            pairs.append((read.slot, write.slot))
    return tuple(pairs)


def _row_view(
    lowering: LoweringState, value: Value, stacked: BufferView, rows: list[RowPointer]
) -> BufferView:
    """Return a view of one row of a stacked array."""
    lowering.buffers.append(
        PlannedBuffer(BufferKind.MOVING, value.type.nbytes, 0, value.name, pinned=True)
    )
    slot = len(lowering.buffers) - 1
    lowering.rows[slot] = stacked
    rows.append(RowPointer(slot, stacked, stacked.strides[0]))
    return BufferView(slot, 0, stacked.shape[1:], stacked.strides[1:], stacked.dtype)


def _lower_scan(lowering: LoweringState, op: Op) -> list[Item]:
    (body,), count = op.blocks, op.attrs["carries"]
    items: list[Item] = []
    rows: list[RowPointer] = []
    reads, writes = _plan_carried_values(lowering, body, op.operands[:count], items)
    for param, stacked in zip(body.params[count:], op.operands[count:], strict=True):
        lowering.views[param] = _row_view(lowering, param, lowering.views[stacked], rows)
    row_views = []
    for value, stacked in zip(body.returns[count:], op.results[count:], strict=True):
        stacked_view = lowering.buffer(stacked)
        lowering.views[stacked] = stacked_view
        lowering.mark_used(stacked_view)
        row_views.append(_row_view(lowering, value, stacked_view, rows))
    lowering.position += 1
    start = lowering.position
    inner, _ = lowering.block(body, [*writes, *row_views])
    lowering.position += 1
    lowering.mark_used(*(each.start for each in rows))
    pairs = _swap_pairs(lowering, reads, writes)
    lowering.extend_live_ranges(start)
    lowering.views.update(zip(op.results[:count], reads, strict=True))
    backwards = bool(op.attrs.get("reverse"))
    items.append(ScanItem(op, op.attrs["length"], backwards, tuple(rows), pairs, tuple(inner)))
    return items


def _lower_while(lowering: LoweringState, op: Op) -> list[Item]:
    condition, body = op.blocks
    items: list[Item] = []
    reads, writes = _plan_carried_values(lowering, body, op.operands, items)
    lowering.views.update(zip(condition.params, reads, strict=True))
    lowering.position += 1
    start = lowering.position
    going = lowering.buffer(condition.returns[0], pinned=True)
    lowering.mark_used(going)
    condition_items, _ = lowering.block(condition, [going])
    lowering.mark_used(going)
    inner, _ = lowering.block(body, writes)
    lowering.position += 1
    pairs = _swap_pairs(lowering, reads, writes)
    lowering.extend_live_ranges(start)
    lowering.mark_used(going)
    lowering.views.update(zip(op.results, reads, strict=True))
    items.append(WhileItem(op, tuple(condition_items), going, pairs, tuple(inner)))
    return items


def _lower_case(lowering: LoweringState, op: Op) -> list[Item]:
    index = lowering.views[op.operands[0]]
    results = [lowering.targets.get(value) or lowering.buffer(value) for value in op.results]
    lowering.mark_used(index, *results)
    start = lowering.position
    branches = []
    for block in op.blocks:
        for param, value in zip(block.params, op.operands[1:], strict=True):
            lowering.views[param] = lowering.views[value]
        lowering.position += 1
        items, _ = lowering.block(block, results)
        branches.append(tuple(items))
    lowering.position += 1
    lowering.mark_used(*results)
    lowering.extend_live_ranges(start)
    lowering.views.update(zip(op.results, results, strict=True))
    return [BranchItem(op, index, tuple(branches))]


CONTROL_FLOW_LOWERINGS: Mapping[str, ControlFlowLowering] = {
    "scan": _lower_scan,
    "while": _lower_while,
    "case": _lower_case,
}
