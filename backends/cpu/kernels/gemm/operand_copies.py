"""Small and skinny products with a copy: of a badly strided right operand, or of the result."""

from collections.abc import Callable, Sequence
from math import prod

from shardir.backends.cpu.kernel_api import BufferView, LoweringContext, Phase, row_major_strides
from shardir.backends.cpu.kernels.data_movement.copy import copy_phases
from shardir.backends.cpu.kernels.gemm.matrix_product import MatrixProduct, ProductLoop, merge_loops
from shardir.backends.cpu.kernels.gemm.tuning import (
    MAX_COPIED_COLUMN_BYTES,
    MIN_TRANSPOSED_VECTORS,
    SKINNY_ROWS,
)
from shardir.backends.cpu.kernels.gemm.vector_arithmetic import VectorArithmetic
from shardir.ir.types import TensorType

LoweringStrategy = Callable[[MatrixProduct, LoweringContext, str], list[Phase]]
"""Returns the phases of a product, none if the strategy does not support it."""


def vector_arithmetic_of(work: MatrixProduct) -> VectorArithmetic:
    """Return the vector arithmetic for the operands of a product."""
    return VectorArithmetic(work.lhs.dtype, work.out.dtype, work.machine.vector_bytes)


def lower_with_rhs_copy(
    work: MatrixProduct,
    ordered: Callable[[MatrixProduct], Sequence[ProductLoop]],
    strategy: LoweringStrategy,
    context: LoweringContext,
    label: str,
) -> list[Phase]:
    """Return the phases with a copy of the right operand, whose loops have the order `ordered`."""
    loops = ordered(work)
    if len(set(loops)) < max(len(loops), 1) or not strategy(
        with_rhs_copy(work, loops, 0)[0], context, label
    ):
        return []
    slot = context.temporary(prod(loop.extent for loop in loops) * work.rhs.itemsize)
    copied_product, source, target = with_rhs_copy(work, loops, slot)
    return [*copy_phases(source, target, context), *strategy(copied_product, context, label)]


def with_rhs_copy(
    work: MatrixProduct, loops: Sequence[ProductLoop], slot: int
) -> tuple[MatrixProduct, BufferView, BufferView]:
    """Return the product with the right operand in a slot and its loops in this order, and the
    source and target views of the copy."""
    shape = tuple(loop.extent for loop in loops)
    source = work.rhs._replace(shape=shape, strides=tuple(loop.rhs for loop in loops))
    target = BufferView(
        slot, 0, shape, row_major_strides(TensorType(shape, source.dtype)), source.dtype
    )
    steps = dict(zip(loops, target.strides, strict=True))
    batch, rows, columns, inner = (
        merge_loops(loop._replace(rhs=steps.get(loop, 0)) for loop in each)
        for each in (work.batch, work.rows, work.columns, [x for x in loops if x in work.inner])
    )
    copied_product = work._replace(rhs=target, batch=batch, rows=rows, columns=columns, inner=inner)
    return copied_product, source, target


def order_for_few_columns(work: MatrixProduct) -> Sequence[ProductLoop]:
    """Return the loop order with K steps innermost, if columns do not fill a vector and sums are
    long."""
    _, rows, columns, inner = work.sizes
    lanes = vector_arithmetic_of(work).lanes
    long = inner >= 8 * lanes and rows >= 4 * columns and 1 < columns < lanes
    return (*_rhs_batch_loops(work), *work.columns, *work.inner) if long else ()


def order_for_strided_columns(work: MatrixProduct) -> Sequence[ProductLoop]:
    """Return the loop order with columns innermost, if they are not contiguous, few, and used by
    enough rows."""
    _, rows, columns, _ = work.sizes
    item = work.rhs.itemsize
    few = 1 < columns <= MAX_COPIED_COLUMN_BYTES // item and rows >= SKINNY_ROWS
    is_strided = few and work.columns[-1].rhs != item
    return (*_rhs_batch_loops(work), *work.inner, *work.columns) if is_strided else ()


def order_for_strided_steps(work: MatrixProduct) -> Sequence[ProductLoop]:
    """Return the loop order of the left operand, if the result is one element."""
    if work.sizes[1:3] != (1, 1):
        return ()
    return (*_rhs_batch_loops(work), *sorted(work.inner, key=lambda loop: -abs(loop.lhs)))


def _rhs_batch_loops(work: MatrixProduct) -> list[ProductLoop]:
    """Return the batch loops of the right operand."""
    return [loop for loop in work.batch if loop.rhs]


def lower_with_result_copy(
    work: MatrixProduct, strategy: LoweringStrategy, context: LoweringContext, label: str
) -> list[Phase]:
    """Return the phases of a product with many contiguous rows and few columns: the transposed
    result is computed, since rows fill vectors better than columns, and copied."""
    kind, item = vector_arithmetic_of(work), work.out.itemsize
    if work.batch or not (len(work.rows) == len(work.columns) == 1):
        return []
    (row,), (column,) = work.rows, work.columns
    if not (
        1 < column.extent < kind.lanes
        and row.extent >= MIN_TRANSPOSED_VECTORS * kind.lanes
        and row.out != item
    ):
        return []
    shape = (column.extent, row.extent)

    def transpose_into(slot: int) -> MatrixProduct:
        copied_product = BufferView(slot, 0, shape, (row.extent * item, item), work.out.dtype)
        rows, columns = (column._replace(out=copied_product.strides[0]),), (row._replace(out=item),)
        return work._replace(out=copied_product, rows=columns, columns=rows).transpose()

    if not strategy(transpose_into(0), context, label):
        return []
    copied_product = transpose_into(context.temporary(column.extent * row.extent * item))
    target = work.out._replace(shape=shape, strides=(column.out, row.out))
    return [
        *strategy(copied_product, context, label),
        *copy_phases(copied_product.out, target, context),
    ]


def lower_with_dense_result(
    work: MatrixProduct, strategy: LoweringStrategy, context: LoweringContext, label: str
) -> list[Phase]:
    """Return the phases of a product whose result is computed with contiguous columns, and
    copied."""
    loops = (*work.batch, *work.rows, *work.columns)
    type = TensorType(tuple(loop.extent for loop in loops), work.out.dtype)
    strides = row_major_strides(type)
    dense = BufferView(context.temporary(type.nbytes), 0, type.shape, strides, work.out.dtype)
    target = work.out._replace(shape=type.shape, strides=tuple(loop.out for loop in loops))
    steps = iter(strides)
    batch, rows, columns = (
        tuple(loop._replace(out=next(steps)) for loop in each)
        for each in (work.batch, work.rows, work.columns)
    )
    copied = work._replace(out=dense, batch=batch, rows=rows, columns=columns)
    return [*strategy(copied, context, label), *copy_phases(dense, target, context)]
