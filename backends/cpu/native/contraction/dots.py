"""Lowers products of patches with few columns to inner-product kernels."""

from math import prod

from shardir.backends.cpu.native.contraction.dotted import LONGEST, SEGMENTS, dotted_kernel
from shardir.backends.cpu.native.contraction.einsum import Product
from shardir.backends.cpu.native.contraction.narrow import spread
from shardir.backends.cpu.native.contraction.rearranged import kind_of, laid
from shardir.backends.cpu.native.contraction.straight import readable, walked
from shardir.backends.cpu.native.data import Context, Phase
from shardir.backends.cpu.native.moves.copying import copy_phases

MOST = 0.75
"""Maximum number of columns, as a fraction of the lanes of a vector."""
COPIED = 1 << 20
"""Maximum bytes of copies of lines that are partly outside the image."""
HIGHEST = 8
"""Maximum rows of a tile: each row needs a register for its address."""


def dotted(work: Product, context: Context, label: str) -> list[Phase]:
    """Return the phases; none if there are too many columns or the K steps are not contiguous."""
    columns, item, kind = work.sizes[2], work.out.itemsize, kind_of(work)
    few = columns <= MOST * kind.lanes
    if not few or not readable(work) or work.rhs.dtype != work.out.dtype:
        return []
    before: list[Phase] = []
    if work.inner[-1].rhs != item or len(work.columns) > 1:
        batch_loops = [loop for loop in work.batch if loop.rhs]
        loops = [*batch_loops, *work.columns, *work.inner]
        # Loops that are adjacent in the copy are merged, so its runs may be longer.
        if not _within_bounds(laid(work, loops, 0)[0]):
            return []
        slot = context.temporary(prod(loop.extent for loop in loops) * item)
        work, source, target = laid(work, loops, slot)
        before = copy_phases(source, target, context)
    elif not _within_bounds(work):
        return []
    run = work.inner[-1].extent
    registers = 24 if work.machine.has_many_registers else 12
    height = max(1, min(HIGHEST, registers // columns))
    checks = len(work.patches.starts) if work.patches else 0
    kernel = dotted_kernel(kind, height, columns, run, checks, walked(work) if checks else -1)
    return [*before, *spread(work, kernel, (height, columns), context, label)]


def _within_bounds(work: Product) -> bool:
    """Return whether the tables can hold the runs, and caches the copied lines."""
    *segments, run = (loop.extent for loop in work.inner)
    if run > LONGEST or prod(segments) > SEGMENTS:
        return False
    return walked(work) < 0 or HIGHEST * work.sizes[3] * work.out.itemsize <= COPIED
