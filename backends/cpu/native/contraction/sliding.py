"""Long one-dimensional filters over long signals, as a product with a Toeplitz matrix.

A vector of output positions is a row: position r of row i is the sum of `signal[16 i + k] *
filter[k - r]` over the valid k (16 lanes). Columns and K steps index one reversed copy of the
filter, rows index the signal; neither is stored more than once.
"""

from shardir.backends.cpu.native.contraction.einsum import Loop, Patches, Product
from shardir.backends.cpu.native.contraction.lowering import multiplied
from shardir.backends.cpu.native.contraction.pitches import sliding
from shardir.backends.cpu.native.contraction.rearranged import kind_of
from shardir.backends.cpu.native.data import Context, Phase, View
from shardir.backends.cpu.native.moves.copying import copy_phases

LONG = 1.5
"""Minimum taps, in vectors, for which the steps that some columns skip cost less than unaligned
loads of the signal."""
ROWS = 32
"""Minimum vectors of output positions."""


def slides(work: Product) -> bool:
    """Return whether an unchecked convolution has long lines of a single feature."""
    if work.sizes[2] != 1 or len(work.inner) != 1 or not work.rows:
        return False
    if work.out.dtype not in ("f32", "f64") or (work.patches and work.patches.starts):
        return False
    lanes, item, position_loop, taps = (
        kind_of(work).lanes,
        work.out.itemsize,
        work.rows[-1],
        work.inner[0],
    )
    return (
        work.lhs.dtype == work.rhs.dtype == work.out.dtype
        and position_loop.lhs == position_loop.out == taps.lhs == item
        and taps.extent >= LONG * lanes
        and position_loop.extent >= ROWS * lanes
        and not any(loop.rhs for loop in work.batch)
    )


def slid(work: Product, context: Context, label: str) -> list[Phase]:
    """Return the phases: the copy of the filter, full rows, and the remaining output positions."""
    lanes, item, position_loop, taps = (
        kind_of(work).lanes,
        work.out.itemsize,
        work.rows[-1],
        work.inner[0],
    )
    length, padding_steps = taps.extent + 2 * (lanes - 1), lanes - 1
    slot = context.temporary(length * item)
    filter = View(slot, 0, (length,), (item,), work.rhs.dtype)
    # Elements beside the filter are read but do not contribute to any sum.
    inside = filter._replace(offset=padding_steps * item, shape=(taps.extent,))
    last = work.rhs.offset + (taps.extent - 1) * taps.rhs
    backwards = work.rhs._replace(offset=last, shape=(taps.extent,), strides=(-taps.rhs,))
    phases = copy_phases(backwards, inside, context)
    rows, rest = divmod(position_loop.extent, lanes)
    step = lanes * item
    whole = work._replace(
        rhs=filter._replace(offset=(length - lanes) * item),
        rows=(*work.rows[:-1], Loop(rows, step, 0, step)),
        columns=(Loop(lanes, 0, item, item),),
        inner=(Loop(taps.extent + padding_steps, item, -item, 0),),
        patches=Patches("rhs", (), ()),
    )
    phases += sliding(whole, context, label)
    if rest:
        done = rows * step
        left = work._replace(
            lhs=work.lhs._replace(offset=work.lhs.offset + done),
            out=work.out._replace(offset=work.out.offset + done),
            rows=(*work.rows[:-1], position_loop._replace(extent=rest)),
        )
        phases += multiplied(left, context, label)
    return phases
