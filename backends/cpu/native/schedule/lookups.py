"""Elements looked up one by one, together with what is done to the indices before and to the
elements after.

    i = select(i < 0, i + n, i);  y = gather(x, i);  z = select(0 <= i < n, y, number)

is what `x[i]` and `take` of single elements are. Each of the three reads and writes memory for what
takes an instruction, so they become one item: indices count from the end where they are negative,
and where they are out of range a number is written, if there is one.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from shardir.backends.cpu.native.data import View
from shardir.backends.cpu.native.schedule.items import Item, LookUp, Work
from shardir.backends.cpu.native.schedule.lowering import Lowered
from shardir.backends.cpu.native.schedule.memory import Buffer, Kind
from shardir.ir import Op, Value
from shardir.opset import Dense

WORDS = (1, 2, 4, 8)
"""Bytes of elements that may be written in place of what is missing."""

Term = tuple[Any, ...]
"""What a value of a group is: ("operand", k), ("constant", number), or an operation of such."""


def with_lookups(lowered: Lowered) -> Lowered:
    """The same with such operations as one item each; what lay between them takes no memory."""
    items: list[Item] = []
    gone: list[Buffer] = []
    left = list(lowered.items)
    while left:
        found = _lookup(left[:3], lowered)
        if found is None:
            items.append(left.pop(0))
            continue
        item, count, dead = found
        items.append(item)
        gone += dead
        del left[:count]
    for buffer in gone:
        buffer.last = -1
    pairs = tuple(
        pair for pair in lowered.pairs if not any(b is each for b in pair[1:] for each in gone)
    )
    return lowered._replace(items=tuple(items), pairs=pairs)


def _lookup(items: Sequence[Item], lowered: Lowered) -> tuple[LookUp, int, list[Buffer]] | None:
    """The first items as one, how many they are, and the buffers that nobody uses any more."""
    if len(items) < 2:
        return None
    counted, gather, chosen = items[0], items[1], items[2] if len(items) > 2 else None
    if not isinstance(counted, Work) or not isinstance(gather, Work) or gather.op.name != "gather":
        return None
    (x, indices), (y,) = gather.operands, gather.results
    if len(gather.op.attrs["start_index_map"]) != 1 or y.size != indices.size:
        return None
    extent = x.shape[gather.op.attrs["start_index_map"][0]]
    repeated = any(n > 1 and not s for n, s in zip(indices.shape, indices.strides, strict=True))
    if not extent or repeated:
        return None
    given = _counted_from(counted, extent)
    if given is None or counted.results[0].slot != indices.slot:
        return None
    moved = indices.offset - counted.results[0].offset
    indices = indices._replace(slot=given.slot, offset=given.offset + moved)
    fill = _number_for_missing(chosen, counted.results[0], y, extent, lowered)
    target, dead = y, [counted.results[0].slot]
    if fill is not None and isinstance(chosen, Work):
        target = chosen.results[0]
        dead.append(y.slot)
    buffers = lowered.buffers
    end = buffers[target.slot].first
    if any(view.slot in lowered.rows for view in (x, indices, target)):
        return None
    if any(buffers[k].kind is not Kind.ARENA or buffers[k].last != end for k in dead):
        return None
    for view in (x, indices):
        buffers[view.slot].use(end)
    item = LookUp(gather.op, (x, indices), (target,), fill)
    return item, 1 + len(dead), [buffers[k] for k in dead]


def _counted_from(work: Work, extent: int) -> View | None:
    """The indices of which those below 0 are counted from the end, if they lie as before."""
    if work.op.name != "fused" or len(work.operands) != 1 or len(work.results) != 1:
        return None
    (given,), (made,) = work.operands, work.results
    i = ("operand", 0)
    wanted = ("select", ("lt", i, ("constant", 0)), ("add", i, ("constant", extent)), i)
    alike = (given.shape, given.strides) == (made.shape, made.strides)
    return given if alike and _term(work.op) == wanted else None


def _number_for_missing(
    item: Item | None, indices: View, found: View, extent: int, lowered: Lowered
) -> int | None:
    """The bits of the number that an item writes where indices are out of range; `None`: it does
    something else."""
    if not isinstance(item, Work) or item.op.name != "fused" or len(item.results) != 1:
        return None
    if (found.itemsize not in WORDS) or item.results[0].shape != found.shape:
        return None
    known = {("operand", k): _constant(view, lowered) for k, view in enumerate(item.operands)}
    places = {view: ("operand", k) for k, view in enumerate(item.operands)}
    term = _term(item.op, {k: v for k, v in known.items() if v is not None})
    if indices not in places or found not in places or term[0] != "select":
        return None
    i = places[indices]
    inside = ("and", ("ge", i, ("constant", 0)), ("lt", i, ("constant", extent)))
    condition, element, number = term[1:]
    if (condition, element) != (inside, places[found]) or number[0] != "constant":
        return None
    bits: npt.NDArray[Any] = np.array(number[1], item.op.results[0].type.numpy)
    return int(bits.view(f"i{found.itemsize}"))


def _constant(view: View, lowered: Lowered) -> Term | None:
    """One number that stands for all of a constant."""
    buffer = lowered.buffers[view.slot]
    if buffer.kind is not Kind.CONSTANT or lowered.constants[buffer.number].size != 1:
        return None
    return ("constant", lowered.constants[buffer.number].item())


def _term(op: Op, known: Mapping[Term, Term] | None = None) -> Term:
    """What a group of operations with one result works out, element by element."""
    (block,) = op.blocks
    terms: dict[Value, Term] = {}
    for k, param in enumerate(block.params):
        place = ("operand", k)
        terms[param] = (known or {}).get(place, place)
    for each in block.ops:
        inner = [terms[value] for value in each.operands]
        if each.name == "constant" and not isinstance(each.attrs["value"], Dense):
            made: Term = ("constant", each.attrs["value"])
        elif each.name in ("broadcast", "reshape") and inner[0][0] == "constant":
            made = inner[0]
        else:
            made = (each.name, *inner)
        terms.update(dict.fromkeys(each.results, made))
    return terms[block.returns[0]] if len(block.returns) == 1 else ("several",)
