"""Products with instructions that add the products of two adjacent K steps
(`dot_product_instructions`).

An element of an operand then consists of both values of such a pair. Where K steps are contiguous,
the operand is read as it is; otherwise a copy has the two values next to each other. The packed
GEMM computes the product of these elements like one of f32 or i32 with half as many K steps.
"""

from collections.abc import Sequence
from itertools import islice
from math import prod
from typing import NamedTuple

from shardir.backends.cpu.codegen.dot_product_instructions import DOT_PRODUCT_INSTRUCTIONS
from shardir.backends.cpu.codegen.target import HostDescription
from shardir.backends.cpu.kernel_api import BufferView, LoweringContext, Phase, row_major_strides
from shardir.backends.cpu.kernels.data_movement.copy import copy_phases
from shardir.backends.cpu.kernels.data_movement.element_cast import cast_phases
from shardir.backends.cpu.kernels.data_movement.interleave import interleave_phases
from shardir.backends.cpu.kernels.data_movement.view_transforms import slice_dim
from shardir.backends.cpu.kernels.gemm.element_arithmetic import arithmetic_of
from shardir.backends.cpu.kernels.gemm.matrix_product import (
    ImagePatches,
    MatrixProduct,
    ProductLoop,
)
from shardir.backends.cpu.kernels.gemm.tuning import MIN_GROUPED_LINES
from shardir.ir.types import TensorType

GROUPED_TYPES = {"bf16": "bf16", "i16": "i16", "i8": "i16", "u8": "i16"}
"""The type of the values of pairs for each type of operands, which are converted to it."""
VALUE_BYTES, PAIR_BYTES = 2, 4
"""Bytes of a value and of a pair."""


class _Operand(NamedTuple):
    """An operand, and its strides in all loops of the product, the K loop with the pairs last."""

    view: BufferView
    strides: tuple[int, ...]

    @property
    def has_pairs(self) -> bool:
        """True if the values of a pair are contiguous, and pairs are aligned."""
        *others, step = self.strides
        return step == VALUE_BYTES and not any(
            number % PAIR_BYTES for number in (self.view.offset, *others)
        )


def has_dot_product_instruction(operand: str, result: str, machine: HostDescription) -> bool:
    """Return whether the machine has an instruction for pairs of elements of operands of this type,
    with the sums of a result of this type."""
    pair = DOT_PRODUCT_INSTRUCTIONS.get(GROUPED_TYPES.get(operand, ""))
    return (
        pair is not None
        and pair.is_supported_by(machine)
        and pair.sum == arithmetic_of(result).type
    )


def has_grouped_steps(work: MatrixProduct) -> bool:
    """Return whether to compute a product with `group_steps`: if the innermost K loop consists of
    pairs that an instruction of the machine multiplies and adds to sums of this type."""
    _, rows, columns, _ = work.sizes
    return (
        work.lhs.dtype == work.rhs.dtype
        and has_dot_product_instruction(work.lhs.dtype, work.out.dtype, work.machine)
        and min(rows, columns) >= MIN_GROUPED_LINES
        and len(work.inner) > 0
        and work.inner[-1].extent % 2 == 0
        and 0 not in work.inner[-1][1:3]
        and not any(work.inner[-1].position_strides)
        and (not work.patches or _has_image_pairs(work, work.patches))
    )


def _has_image_pairs(work: MatrixProduct, patches: ImagePatches) -> bool:
    """Return whether patches have pairs, or a copy of them would not repeat elements of the
    image."""
    image = _operand(work, patches.side)
    if image.view.itemsize != VALUE_BYTES:
        return False
    extents = (loop.extent for loop in _loops(work))
    count = prod(n for n, stride in zip(extents, image.strides, strict=True) if stride)
    return image.has_pairs or (not patches.starts and count <= image.view.size)


def _loops(work: MatrixProduct) -> tuple[ProductLoop, ...]:
    return (*work.batch, *work.rows, *work.columns, *work.inner)


def _operand(work: MatrixProduct, side: str) -> _Operand:
    if side == "lhs":
        return _Operand(work.lhs, tuple(loop.lhs for loop in _loops(work)))
    return _Operand(work.rhs, tuple(loop.rhs for loop in _loops(work)))


def group_steps(work: MatrixProduct, context: LoweringContext) -> tuple[list[Phase], MatrixProduct]:
    """Return the phases that copy operands, and the product of pairs."""
    groups = work.batch, work.rows, work.columns, work.inner
    loops, copies = _loops(work), list[Phase]()
    extents = [loop.extent for loop in loops]
    lhs, rhs = (
        _pair_operand(_operand(work, side), extents, work.arithmetic.dtype, copies, context)
        for side in ("lhs", "rhs")
    )
    extents[-1] //= 2
    grouped = iter(
        loop._replace(extent=extent, lhs=left, rhs=right)
        for loop, extent, left, right in zip(loops, extents, lhs.strides, rhs.strides, strict=True)
    )
    batch, row, column, inner = (tuple(islice(grouped, len(group))) for group in groups)
    return copies, work._replace(
        lhs=lhs.view, rhs=rhs.view, batch=batch, rows=row, columns=column, inner=inner,
        grouped=GROUPED_TYPES[work.lhs.dtype],
    )  # fmt: skip


def _pair_operand(
    operand: _Operand,
    extents: Sequence[int],
    dtype: str,
    copies: list[Phase],
    context: LoweringContext,
) -> _Operand:
    """Return the operand of pairs, as elements of the sums' type `dtype`, and add the phases of
    copies; the K loop has half of the steps of `extents`."""
    if operand.view.itemsize != VALUE_BYTES:
        operand = _widen_operand(operand, extents, copies, context)
    *others, step = operand.strides
    if operand.has_pairs:
        return _Operand(operand.view._replace(dtype=dtype), (*others, PAIR_BYTES))
    halved = [*extents[:-1], extents[-1] // 2]
    source, target, strides = _dense_copy(
        operand.view, halved, (*others, 2 * step), (step,), operand.view.dtype, context
    )
    last = len(source.shape) - 1
    halves = [slice_dim(source, last, i, 1) for i in range(2)]
    copies += interleave_phases(halves, target, last, context) or copy_phases(
        source, target, context
    )
    return _Operand(target._replace(dtype=dtype), strides)


def _widen_operand(
    operand: _Operand, extents: Sequence[int], copies: list[Phase], context: LoweringContext
) -> _Operand:
    """Return the operand with elements of the type that instructions multiply; add the phases of
    the conversion."""
    view, strides = operand
    source, target, dense = _dense_copy(
        view, extents, strides, (), GROUPED_TYPES[view.dtype], context
    )
    copies += cast_phases(source, target, context)
    return _Operand(target, dense)


def _dense_copy(
    view: BufferView,
    extents: Sequence[int],
    strides: Sequence[int],
    pair: tuple[int, ...],
    dtype: str,
    context: LoweringContext,
) -> tuple[BufferView, BufferView, tuple[int, ...]]:
    """Return the source and the target of a dense copy with the loops in the order of their
    strides, and the strides of all loops in the target. `pair` is the stride of a pair, if any."""
    copied = sorted(
        (i for i, stride in enumerate(strides) if stride), key=lambda i: -abs(strides[i])
    )
    shape = (*(extents[i] for i in copied), *(2 for _ in pair))
    dense = row_major_strides(TensorType(shape, dtype))
    source = view._replace(shape=shape, strides=(*(strides[i] for i in copied), *pair))
    target = BufferView(context.temporary(source.size * VALUE_BYTES), 0, shape, dense, dtype)
    place = dict(zip(copied, dense, strict=False))
    return source, target, tuple(place.get(i, 0) for i in range(len(strides)))
