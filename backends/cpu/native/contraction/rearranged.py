"""Small and narrow products with a copy: of a right operand that lies badly, or of the result."""

from collections.abc import Callable, Sequence
from math import prod

from shardir.backends.cpu.native.contraction.einsum import Loop, Product, merged
from shardir.backends.cpu.native.contraction.vectors import Vectors
from shardir.backends.cpu.native.data import Context, Phase, View, packed
from shardir.backends.cpu.native.moves.copying import copy_phases
from shardir.types import TensorType

Way = Callable[[Product, Context, str], list[Phase]]
"""Makes the phases of a product, none if it cannot."""

FEW_ROWS = 8
TALL = 4
"""Vectors of rows from which on they are worth turning a result around."""
WIDE = 512
"""Bytes of columns beyond which those that lie apart are packed rather than copied."""


def kind_of(work: Product) -> Vectors:
    """How its numbers are read, multiplied and written in vectors."""
    return Vectors(work.lhs.dtype, work.out.dtype, work.machine.vector_bytes)


def copied(
    work: Product, ordered: Callable[[Product], Sequence[Loop]], way: Way, context: Context,
    label: str,
) -> list[Phase]:  # fmt: skip
    """With a copy of the right operand first, whose loops lie in this order."""
    loops = ordered(work) if not work.patches and kind_of(work).possible() else ()
    if len(set(loops)) < max(len(loops), 1) or not way(laid(work, loops, 0)[0], context, label):
        return []
    slot = context.temporary(prod(loop.extent for loop in loops) * work.rhs.itemsize)
    made, source, target = laid(work, loops, slot)
    return [*copy_phases(source, target, context), *way(made, context, label)]


def laid(work: Product, loops: Sequence[Loop], slot: int) -> tuple[Product, View, View]:
    """With the right operand in a slot, its loops in this order; that operand as it is, and
    there."""
    shape = tuple(loop.extent for loop in loops)
    source = work.rhs._replace(shape=shape, strides=tuple(loop.rhs for loop in loops))
    target = View(slot, 0, shape, packed(TensorType(shape, source.dtype)), source.dtype)
    steps = dict(zip(loops, target.strides, strict=True))
    batch, rows, columns, inner = (
        merged(loop._replace(rhs=steps.get(loop, 0)) for loop in each)
        for each in (work.batch, work.rows, work.columns, [x for x in loops if x in work.inner])
    )
    made = work._replace(rhs=target, batch=batch, rows=rows, columns=columns, inner=inner)
    return made, source, target


def few_columns(work: Product) -> Sequence[Loop]:
    """Steps innermost, if columns would not fill a vector, and sums are long."""
    _, rows, columns, inner = work.sizes
    lanes = kind_of(work).lanes
    long = inner >= 8 * lanes and rows >= 4 * columns and 1 < columns < lanes
    return (*_kept(work), *work.columns, *work.inner) if long else ()


def columns_apart(work: Product) -> Sequence[Loop]:
    """Columns innermost, if they are not yet, they are few, and enough rows meet them."""
    _, rows, columns, _ = work.sizes
    item = work.rhs.itemsize
    few = 1 < columns <= WIDE // item and rows >= FEW_ROWS
    apart = few and work.columns[-1].rhs != item
    return (*_kept(work), *work.inner, *work.columns) if apart else ()


def steps_apart(work: Product) -> Sequence[Loop]:
    """The order of the left operand, if all that there are make one number."""
    if work.sizes[1:3] != (1, 1) or len(work.inner) < 2:
        return ()
    return (*_kept(work), *sorted(work.inner, key=lambda loop: -abs(loop.lhs)))


def _kept(work: Product) -> list[Loop]:
    """The batch of the right operand."""
    return [loop for loop in work.batch if loop.rhs]


def stored_after(work: Product, way: Way, context: Context, label: str) -> list[Phase]:
    """Of many rows, which are neighbours in the left operand, and few columns: the result is made
    turned around, since rows fill vectors better than columns do, and copied to where it belongs.
    """
    kind, item = kind_of(work), work.out.itemsize
    if work.patches or work.batch or not (len(work.rows) == len(work.columns) == 1):
        return []
    (row,), (column,) = work.rows, work.columns
    if not (
        kind.possible()
        and 1 < column.extent < kind.lanes
        and row.extent >= TALL * kind.lanes
        and row.lhs == work.lhs.itemsize
        and row.out != item
    ):
        return []
    shape = (column.extent, row.extent)

    def turned(slot: int) -> Product:
        made = View(slot, 0, shape, (row.extent * item, item), work.out.dtype)
        rows, columns = (column._replace(out=made.strides[0]),), (row._replace(out=item),)
        return work._replace(out=made, rows=columns, columns=rows).turned()

    if not way(turned(0), context, label):
        return []
    made = turned(context.temporary(column.extent * row.extent * item))
    target = work.out._replace(shape=shape, strides=(column.out, row.out))
    return [*way(made, context, label), *copy_phases(made.out, target, context)]
