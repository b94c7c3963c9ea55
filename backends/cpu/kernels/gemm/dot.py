"""The lowering rule of `dot`."""

from collections.abc import Sequence

from shardir.backends.cpu.kernel_api import BufferView, LoweringContext, Phase
from shardir.backends.cpu.kernels.gemm.element_arithmetic import arithmetic_of, can_widen
from shardir.backends.cpu.kernels.gemm.matrix_product import matrix_product_of
from shardir.backends.cpu.kernels.gemm.product_dispatch import lower_product
from shardir.ir.module import Op


def dot_rule(
    op: Op, operands: Sequence[BufferView], results: Sequence[BufferView], context: LoweringContext
) -> Sequence[Phase] | None:
    """Lower a batched matrix product; return None if an operand cannot be widened to the result
    type."""
    lhs, rhs = operands
    (out,) = results
    if not all(can_widen(view.dtype, arithmetic_of(out.dtype)) for view in operands):
        return None
    work = matrix_product_of(op.attrs["dims"], lhs, rhs, out, context.machine)
    return lower_product(work, context, "dot")


def dot_order(op: Op, operands: Sequence[BufferView]) -> Sequence[int]:
    """Return the layout of the result: batch dimensions, then dimensions of the left operand, then
    of the right one, each in the order of their strides."""
    left, right = op.attrs["dims"].partition("->")[0].split(",")
    output = op.attrs["dims"].partition("->")[2]
    lhs, rhs = (
        dict(zip(term, view.strides, strict=True))
        for term, view in zip((left, right), operands, strict=True)
    )

    def place(dim: int) -> tuple[int, int]:
        letter = output[dim]
        if letter in lhs:
            return (0 if letter in rhs else 1), -abs(lhs[letter])
        return 2, -abs(rhs[letter])

    return sorted(range(len(output)), key=place)
