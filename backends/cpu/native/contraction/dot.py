"""The lowering rule of `dot`."""

from collections.abc import Sequence

from shardir.backends.cpu.native.contraction.einsum import product_of
from shardir.backends.cpu.native.contraction.elements import arithmetic, converts
from shardir.backends.cpu.native.contraction.lowering import multiplied
from shardir.backends.cpu.native.data import Context, Phase, View
from shardir.ir import Op


def dot_rule(
    op: Op, operands: Sequence[View], results: Sequence[View], context: Context
) -> Sequence[Phase] | None:
    """Lower a batched matrix product; return None if an operand cannot be widened to the result
    type."""
    lhs, rhs = operands
    (out,) = results
    if not all(converts(view.dtype, arithmetic(out.dtype)) for view in operands):
        return None
    work = product_of(op.attrs["dims"], lhs, rhs, out, context.machine)
    return multiplied(work, context, "dot")


def dot_order(op: Op, operands: Sequence[View]) -> Sequence[int]:
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
