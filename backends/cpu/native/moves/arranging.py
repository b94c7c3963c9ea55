"""Lowering rules of operations that rearrange data: copies of views and of parts of views."""

from collections.abc import Sequence

from shardir.backends.cpu.native.data import Context, Phase, Rule, View, packed
from shardir.backends.cpu.native.moves.copying import copy_phases
from shardir.backends.cpu.native.moves.interleaving import interleaved
from shardir.backends.cpu.native.moves.views import broadcasted, part, sliced, turned
from shardir.backends.cpu.native.schedule.views import restrided, seen_through
from shardir.ir import Op
from shardir.types import TensorType


def view_rule(
    op: Op, operands: Sequence[View], results: Sequence[View], context: Context
) -> list[Phase]:
    """Lower an operation whose result is a view of its operand but needs memory of its own."""
    seen = seen_through(op, operands)
    if seen is not None:
        return [p for s, t in zip(seen, results, strict=True) for p in copy_phases(s, t, context)]
    return reshape_phases(operands[0], results[0], context)


def reshape_phases(source: View, target: View, context: Context) -> list[Phase]:
    """Return phases that copy `source` in row-major order to the shape of `target`."""
    strides = restrided(source.shape, source.strides, target.shape)
    if strides is not None:
        return copy_phases(source._replace(shape=target.shape, strides=strides), target, context)
    strides = restrided(target.shape, target.strides, source.shape)
    if strides is not None:
        return copy_phases(source, target._replace(shape=source.shape, strides=strides), context)
    before, after = (TensorType(view.shape, source.dtype) for view in (source, target))
    slot = context.temporary(before.nbytes)
    dense = View(slot, 0, before.shape, packed(before), before.dtype)
    again = dense._replace(shape=after.shape, strides=packed(after))
    return [*copy_phases(source, dense, context), *copy_phases(again, target, context)]


def concatenate_rule(
    op: Op, operands: Sequence[View], results: Sequence[View], context: Context
) -> list[Phase]:
    """Lower a concatenation: copy every operand to its part, or interleave all operands."""
    interleave = interleaved(operands, results[0], op.attrs["dim"], context)
    if interleave is not None:
        return interleave
    dim, start = op.attrs["dim"], 0
    phases: list[Phase] = []
    for view in operands:
        size = view.shape[dim]
        phases += copy_phases(view, part(results[0], dim, start, size), context)
        start += size
    return phases


def roll_rule(
    op: Op, operands: Sequence[View], results: Sequence[View], context: Context
) -> list[Phase]:
    """Lower a roll to two copies: the elements that stay in order and the ones that wrap around."""
    (x,), (y,), dim, shift = operands, results, op.attrs["dim"], op.attrs["shift"]
    size = x.shape[dim]
    return [
        *copy_phases(part(x, dim, 0, size - shift), part(y, dim, shift, size - shift), context),
        *copy_phases(part(x, dim, size - shift, shift), part(y, dim, 0, shift), context),
    ]


def pad_rule(
    op: Op, operands: Sequence[View], results: Sequence[View], context: Context
) -> list[Phase]:
    """Lower padding: the padding value around the operand, or everywhere if it is interior."""
    (x, value), (y,) = operands, results
    starts, steps, firsts, counts = [], [], [], []
    for size, low, gap, extent in zip(
        x.shape, op.attrs["low"], op.attrs["interior"], y.shape, strict=True
    ):
        step = gap + 1
        first = max(-(low // step), 0)
        last = min(size, -((low - extent) // step))
        starts.append(low + first * step)
        steps.append(step)
        firsts.append(first)
        counts.append(max(last - first, 0))
    inside = sliced(x, firsts, [1] * len(x.shape), counts)
    target = sliced(y, starts, steps, counts)
    phases: list[Phase] = []
    if inside.size == 0 or any(step > 1 for step in steps):
        borders = [y]
    else:
        borders = _around(y, starts, counts)
    for border in borders:
        phases += copy_phases(broadcasted(value, (), border.shape), border, context)
    return [*phases, *copy_phases(inside, target, context)]


def _around(view: View, starts: Sequence[int], counts: Sequence[int]) -> list[View]:
    """Return the boxes that remain of a view without the box at `starts`."""
    borders = []
    for d, (start, count) in enumerate(zip(starts, counts, strict=True)):
        end = start + count
        borders += [part(view, d, 0, start), part(view, d, end, view.shape[d] - end)]
        view = part(view, d, start, count)
    return [border for border in borders if border.size]


def bitcast_rule(
    op: Op, operands: Sequence[View], results: Sequence[View], context: Context
) -> list[Phase]:
    """Lower a bitcast: copy items of the narrower type, of which a row is the wider type."""
    (x,), (y,) = operands, results
    key = "key" in (x.dtype, y.dtype) and x.dtype != y.dtype
    if x.itemsize > y.itemsize:
        x = _in_parts(x, y, key)
    elif y.itemsize > x.itemsize:
        y = _in_parts(y, x, key)
    return copy_phases(x, y._replace(dtype=x.dtype), context)


def _in_parts(wide: View, narrow: View, reverse: bool) -> View:
    """Return elements as rows of narrower ones, lowest first, or highest first with `reverse`."""
    size = narrow.itemsize
    parts = View(
        wide.slot,
        wide.offset,
        (*wide.shape, wide.itemsize // size),
        (*wide.strides, size),
        narrow.dtype,
    )
    return turned(parts, [len(wide.shape)]) if reverse else parts


RULES: dict[str, Rule] = {
    "broadcast": view_rule,
    "transpose": view_rule,
    "reshape": view_rule,
    "slice": view_rule,
    "reverse": view_rule,
    "concatenate": concatenate_rule,
    "roll": roll_rule,
    "pad": pad_rule,
    "bitcast": bitcast_rule,
}
"""Each rule supports any strides."""
