"""Long filters that slide along long signals: a product with a filter that is laid out by steps.

A vector of places is a row: place r of row i is the sum of `signal[16 i + k] * filter[k - r]` over
those k that the filter has. So columns, and steps, walk along one filter that lies backwards, and
rows along the signal; nothing of either is laid out more than once.
"""

from shardir.backends.cpu.native.contraction.einsum import Loop, Patches, Product
from shardir.backends.cpu.native.contraction.lowering import multiplied
from shardir.backends.cpu.native.contraction.pitches import sliding
from shardir.backends.cpu.native.contraction.rearranged import kind_of
from shardir.backends.cpu.native.data import Context, Phase, View
from shardir.backends.cpu.native.moves.copying import copy_phases

LONG = 1.5
"""Vectors of taps from which on the steps that some columns lack cost less than reading the signal
in vectors that begin anywhere."""
ROWS = 32
"""Vectors of places that are worth it."""


def slides(work: Product) -> bool:
    """Whether a convolution, of which nothing is checked, is one of long lines of one feature."""
    if work.sizes[2] != 1 or len(work.inner) != 1 or not work.rows:
        return False
    if work.out.dtype not in ("f32", "f64") or (work.patches and work.patches.starts):
        return False
    lanes, item, near, taps = kind_of(work).lanes, work.out.itemsize, work.rows[-1], work.inner[0]
    return (
        work.lhs.dtype == work.rhs.dtype == work.out.dtype
        and near.lhs == near.out == taps.lhs == item
        and taps.extent >= LONG * lanes
        and near.extent >= ROWS * lanes
        and not any(loop.rhs for loop in work.batch)
    )


def slid(work: Product, context: Context, label: str) -> list[Phase]:
    """Its phases: the filter, whole rows, and the places that are left."""
    lanes, item, near, taps = kind_of(work).lanes, work.out.itemsize, work.rows[-1], work.inner[0]
    length, beside = taps.extent + 2 * (lanes - 1), lanes - 1
    slot = context.temporary(length * item)
    filter = View(slot, 0, (length,), (item,), work.rhs.dtype)
    # What lies beside it is read, and has no part in any sum.
    inside = filter._replace(offset=beside * item, shape=(taps.extent,))
    last = work.rhs.offset + (taps.extent - 1) * taps.rhs
    backwards = work.rhs._replace(offset=last, shape=(taps.extent,), strides=(-taps.rhs,))
    phases = copy_phases(backwards, inside, context)
    rows, rest = divmod(near.extent, lanes)
    step = lanes * item
    whole = work._replace(
        rhs=filter._replace(offset=(length - lanes) * item),
        rows=(*work.rows[:-1], Loop(rows, step, 0, step)),
        columns=(Loop(lanes, 0, item, item),),
        inner=(Loop(taps.extent + beside, item, -item, 0),),
        patches=Patches("rhs", (), ()),
    )
    phases += sliding(whole, context, label)
    if rest:
        done = rows * step
        left = work._replace(
            lhs=work.lhs._replace(offset=work.lhs.offset + done),
            out=work.out._replace(offset=work.out.offset + done),
            rows=(*work.rows[:-1], near._replace(extent=rest)),
        )
        phases += multiplied(left, context, label)
    return phases
