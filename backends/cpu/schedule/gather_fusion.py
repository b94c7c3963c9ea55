"""Fuse a gather of single elements with the index arithmetic before and the select after it.

    i = select(i < 0, i + n, i);  y = gather(x, i);  z = select(0 <= i < n, y, number)

is the lowering of `x[i]` and of `take` of single elements. Each of the three reads and writes
memory for the work of one instruction, so they become one item: negative indices count from the
end, and a fill value, if there is one, replaces elements out of bounds.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from shardir import ops
from shardir.backends.cpu.kernel_api import BufferView
from shardir.backends.cpu.schedule.arena import BufferKind, PlannedBuffer
from shardir.backends.cpu.schedule.function_lowering import Lowered
from shardir.backends.cpu.schedule.items import GatherElements, Item, WorkItem
from shardir.ir.module import Op, Value
from shardir.ir.types import NumpyArray

FILL_ELEMENT_BYTES = (1, 2, 4, 8)
"""Element sizes in bytes for which a fill value can be written."""

SymbolicTerm = tuple[Any, ...]
"""A symbolic value inside of a fused group: ("operand", k), ("constant", number), or an operation
with terms as operands."""


def fuse_gathers(lowered: Lowered) -> Lowered:
    """Return the program with such operations fused; values between them need no memory."""
    items: list[Item] = []
    dead_buffers: list[PlannedBuffer] = []
    left = list(lowered.items)
    while left:
        found = _match_gather(left[:3], lowered)
        if found is None:
            items.append(left.pop(0))
            continue
        item, count, dead = found
        items.append(item)
        dead_buffers += dead
        del left[:count]
    for buffer in dead_buffers:
        buffer.last = -1
    pairs = tuple(
        pair
        for pair in lowered.pairs
        if not any(b is each for b in pair[1:] for each in dead_buffers)
    )
    return lowered._replace(items=tuple(items), pairs=pairs)


def _match_gather(
    items: Sequence[Item], lowered: Lowered
) -> tuple[GatherElements, int, list[PlannedBuffer]] | None:
    """Match the first items; return the fused item, how many items it replaces, and dead
    buffers."""
    if len(items) < 2:
        return None
    counted, gather, chosen = items[0], items[1], items[2] if len(items) > 2 else None
    if (
        not isinstance(counted, WorkItem)
        or not isinstance(gather, WorkItem)
        or gather.op.spec is not ops.gather
    ):
        return None
    (x, indices), (y,) = gather.operands, gather.results
    if len(gather.op.attrs["start_index_map"]) != 1 or y.size != indices.size:
        return None
    extent = x.shape[gather.op.attrs["start_index_map"][0]]
    repeated = any(n > 1 and not s for n, s in zip(indices.shape, indices.strides, strict=True))
    if not extent or repeated:
        return None
    given = _match_normalized_indices(counted, extent)
    if given is None or counted.results[0].slot != indices.slot:
        return None
    view_offset = indices.offset - counted.results[0].offset
    indices = indices._replace(slot=given.slot, offset=given.offset + view_offset)
    fill = _match_fill_value(chosen, counted.results[0], y, extent, lowered)
    target, dead = y, [counted.results[0].slot]
    if fill is not None and isinstance(chosen, WorkItem):
        target = chosen.results[0]
        dead.append(y.slot)
    buffers = lowered.buffers
    end = buffers[target.slot].first
    if any(view.slot in lowered.rows for view in (x, indices, target)):
        return None
    if any(buffers[k].kind is not BufferKind.ARENA or buffers[k].last != end for k in dead):
        return None
    for view in (x, indices):
        buffers[view.slot].extend_live_range(end)
    item = GatherElements(gather.op, (x, indices), (target,), fill)
    return item, 1 + len(dead), [buffers[k] for k in dead]


def _match_normalized_indices(work: WorkItem, extent: int) -> BufferView | None:
    """Return the original indices if an item adds the extent to negative ones, in the same
    layout."""
    if work.op.spec is not ops.fused or len(work.operands) != 1 or len(work.results) != 1:
        return None
    (given,), (result,) = work.operands, work.results
    i = ("operand", 0)
    expected = ("select", ("lt", i, ("constant", 0)), ("add", i, ("constant", extent)), i)
    alike = (given.shape, given.strides) == (result.shape, result.strides)
    return given if alike and _symbolic_term(work.op) == expected else None


def _match_fill_value(
    item: Item | None, indices: BufferView, found: BufferView, extent: int, lowered: Lowered
) -> int | None:
    """Return the bits of the fill value that an item writes for indices out of bounds, or
    `None`."""
    if not isinstance(item, WorkItem) or item.op.spec is not ops.fused:
        return None
    if found.itemsize not in FILL_ELEMENT_BYTES:
        return None
    known = {
        ("operand", k): _scalar_constant(view, lowered) for k, view in enumerate(item.operands)
    }
    terms = {view: ("operand", k) for k, view in enumerate(item.operands)}
    term = _symbolic_term(item.op, {k: v for k, v in known.items() if v is not None})
    if indices not in terms or found not in terms or term[0] != "select":
        return None
    i = terms[indices]
    inside = ("and", ("ge", i, ("constant", 0)), ("lt", i, ("constant", extent)))
    condition, element, number = term[1:]
    if (condition, element) != (inside, terms[found]) or number[0] != "constant":
        return None
    bits: NumpyArray = np.array(number[1], item.op.results[0].type.numpy)
    return int(bits.view(f"i{found.itemsize}"))


def _scalar_constant(view: BufferView, lowered: Lowered) -> SymbolicTerm | None:
    """Return the constant term of a view that broadcasts a single value."""
    buffer = lowered.buffers[view.slot]
    if buffer.kind is not BufferKind.CONSTANT or lowered.constants[buffer.number].size != 1:
        return None
    return ("constant", lowered.constants[buffer.number].item())


def _symbolic_term(
    op: Op, known: Mapping[SymbolicTerm, SymbolicTerm] | None = None
) -> SymbolicTerm:
    """Return the elementwise computation of a fused group with one result as a term."""
    (block,) = op.blocks
    terms: dict[Value, SymbolicTerm] = {}
    for k, param in enumerate(block.params):
        operand_term = ("operand", k)
        terms[param] = (known or {}).get(operand_term, operand_term)
    for each in block.ops:
        inner = [terms[value] for value in each.operands]
        if each.spec is ops.constant:
            term: SymbolicTerm = ("constant", each.attrs["value"])
        elif each.spec in (ops.broadcast, ops.reshape) and inner[0][0] == "constant":
            term = inner[0]
        else:
            term = (each.name, *inner)
        terms.update(dict.fromkeys(each.results, term))
    return terms[block.returns[0]] if len(block.returns) == 1 else ("several",)
