"""Long one-dimensional filters over long signals, as a product with a Toeplitz matrix.

A vector of output positions is a row: position r of row i is the sum of `signal[16 i + k] *
filter[k - r]` over the valid k (16 lanes). Columns and K steps index one reversed copy of the
filter, rows index the signal; neither is stored more than once.
"""

from shardir.backends.cpu.kernel_api import BufferView, LoweringContext, Phase
from shardir.backends.cpu.kernels.conv.strided_gemm import lower_sliding_product
from shardir.backends.cpu.kernels.data_movement.copy import copy_phases
from shardir.backends.cpu.kernels.gemm.matrix_product import (
    ImagePatches,
    MatrixProduct,
    ProductLoop,
)
from shardir.backends.cpu.kernels.gemm.operand_copies import vector_arithmetic_of
from shardir.backends.cpu.kernels.gemm.product_dispatch import lower_product

MIN_TAP_VECTORS = 1.5
"""Minimum taps, in vectors, for which the steps that some columns skip cost less than unaligned
loads of the signal."""
MIN_POSITION_VECTORS = 32
"""Minimum vectors of output positions."""


def is_sliding_filter(work: MatrixProduct) -> bool:
    """Return whether an unchecked convolution has long lines of a single feature."""
    if work.sizes[2] != 1 or len(work.inner) != 1 or not work.rows:
        return False
    if work.out.dtype not in ("f32", "f64") or (work.patches and work.patches.starts):
        return False
    lanes, item, position_loop, taps = (
        vector_arithmetic_of(work).lanes,
        work.out.itemsize,
        work.rows[-1],
        work.inner[0],
    )
    return (
        work.lhs.dtype == work.rhs.dtype == work.out.dtype
        and position_loop.lhs == position_loop.out == taps.lhs == item
        and taps.extent >= MIN_TAP_VECTORS * lanes
        and position_loop.extent >= MIN_POSITION_VECTORS * lanes
        and not any(loop.rhs for loop in work.batch)
    )


def lower_sliding_filter(work: MatrixProduct, context: LoweringContext, label: str) -> list[Phase]:
    """Return the phases: the copy of the filter, full rows, and the remaining output positions."""
    lanes, item, position_loop, taps = (
        vector_arithmetic_of(work).lanes,
        work.out.itemsize,
        work.rows[-1],
        work.inner[0],
    )
    length, padding_steps = taps.extent + 2 * (lanes - 1), lanes - 1
    slot = context.temporary(length * item)
    filter = BufferView(slot, 0, (length,), (item,), work.rhs.dtype)
    # Elements beside the filter are read but do not contribute to any sum.
    inside = filter._replace(offset=padding_steps * item, shape=(taps.extent,))
    last = work.rhs.offset + (taps.extent - 1) * taps.rhs
    backwards = work.rhs._replace(offset=last, shape=(taps.extent,), strides=(-taps.rhs,))
    phases = copy_phases(backwards, inside, context)
    rows, rest = divmod(position_loop.extent, lanes)
    step = lanes * item
    whole = work._replace(
        rhs=filter._replace(offset=(length - lanes) * item),
        rows=(*work.rows[:-1], ProductLoop(rows, step, 0, step)),
        columns=(ProductLoop(lanes, 0, item, item),),
        inner=(ProductLoop(taps.extent + padding_steps, item, -item, 0),),
        patches=ImagePatches("rhs", (), ()),
    )
    phases += lower_sliding_product(whole, context, label)
    if rest:
        done = rows * step
        left = work._replace(
            lhs=work.lhs._replace(offset=work.lhs.offset + done),
            out=work.out._replace(offset=work.out.offset + done),
            rows=(*work.rows[:-1], position_loop._replace(extent=rest)),
        )
        phases += lower_product(left, context, label)
    return phases
