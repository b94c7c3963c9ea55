"""Convolutions of few channels of bf16 with the instruction for pairs (`BF16_PAIRS`).

A copy of the image has the channels of a position as pairs; the last one of an odd number of
channels is paired with zero. A pair has the size of an f32, so that the product of the copies is
lowered like one of f32 with half as many channels, in padded NHWC layout.
"""

from collections.abc import Callable, Mapping
from math import prod
from typing import NamedTuple

from shardir.backends.cpu.codegen.dot_product_instructions import BF16_PAIRS, group_dtype
from shardir.backends.cpu.kernel_api import BufferView, LoweringContext, Phase, row_major_strides
from shardir.backends.cpu.kernels.conv.padded_nhwc import lower_padded_nhwc
from shardir.backends.cpu.kernels.conv.tuning import (
    MIN_INNERMOST_STEPS,
    MIN_PAIRED_FEATURES,
    PAIRED_COPY_NS_PER_ELEMENT,
    SQUARE_TRANSPOSE_NS_PER_ELEMENT,
)
from shardir.backends.cpu.kernels.data_movement.copy import copy_phases
from shardir.backends.cpu.kernels.data_movement.element_cast import cast_phases
from shardir.backends.cpu.kernels.data_movement.view_transforms import slice_dim, slice_view
from shardir.backends.cpu.kernels.gemm.element_arithmetic import arithmetic_of
from shardir.backends.cpu.kernels.gemm.matrix_product import MatrixProduct
from shardir.backends.cpu.kernels.gemm.operand_copies import lower_with_dense_result
from shardir.backends.cpu.kernels.gemm.skinny_dispatch import operations_per_ns
from shardir.ir.operation import Attr
from shardir.ir.types import TensorType
from shardir.ops.contraction.convolution_factors import parse_dims

PAIR = group_dtype(BF16_PAIRS)
"""The type of elements of the size of a pair."""
ProductOf = Callable[[BufferView, BufferView], MatrixProduct]
"""Returns the product of a convolution of an image and a filter."""


def lower_channel_pairs(
    attrs: Mapping[str, Attr],
    x: BufferView,
    w: BufferView,
    out: BufferView,
    product_of: ProductOf,
    context: LoweringContext,
    label: str,
) -> list[Phase]:
    """Return the phases of a convolution of pairs of channels; none if it is not possible or does
    not pay off."""
    if not _has_channel_pairs(attrs, x, w, out, context):
        return []
    of, by, _ = parse_dims(attrs["dims"])
    image = _PairedOperand(
        x, of.features_or_outputs, (of.batch_or_inputs, *of.spatial, of.features_or_outputs)
    )
    filter = _PairedOperand(
        w, by.batch_or_inputs, (*by.spatial, by.batch_or_inputs, by.features_or_outputs)
    )
    work = product_of(image.pairs(0), filter.pairs(0))
    columns = tuple(loop._replace(out=out.itemsize) for loop in work.columns)
    dense = work._replace(grouped=BF16_PAIRS, columns=columns)
    if not lower_padded_nhwc(dense, context, label):
        return []
    copies, views = [], []
    for operand in (image, filter):
        view = operand.pairs(context.temporary(operand.nbytes))
        copies += operand.copy(view, context)
        views.append(view)
    work = product_of(*views)._replace(grouped=BF16_PAIRS)
    if work.columns == columns:
        return [*copies, *lower_padded_nhwc(work, context, label)]
    return [*copies, *lower_with_dense_result(work, lower_padded_nhwc, context, label)]


def _has_channel_pairs(
    attrs: Mapping[str, Attr],
    x: BufferView,
    w: BufferView,
    out: BufferView,
    context: LoweringContext,
) -> bool:
    """Return whether the machine multiplies pairs of channels, and copies of pairs pay off."""
    _, by, to = parse_dims(attrs["dims"])
    channels, features = w.shape[by.batch_or_inputs], w.shape[by.features_or_outputs]
    is_plain = (
        attrs.get("groups", 1) * attrs.get("batch_groups", 1) == 1
        and max(attrs["lhs_dilation"], default=1) == 1
    )
    if (
        not is_plain
        or not x.dtype == w.dtype == BF16_PAIRS.dtype
        or not BF16_PAIRS.is_fast_on(context.machine)
        or arithmetic_of(out.dtype).type != BF16_PAIRS.sum
        or not 1 < channels < MIN_INNERMOST_STEPS
        or features < MIN_PAIRED_FEATURES
    ):
        return False
    steps = out.size * prod(w.shape[d] for d in by.spatial)
    saved = 2.0 * steps * (channels // 2) / operations_per_ns(4, 1, context.machine)
    copies = PAIRED_COPY_NS_PER_ELEMENT * (x.size + w.size)
    if out.strides[to.features_or_outputs] != out.itemsize:
        copies += SQUARE_TRANSPOSE_NS_PER_ELEMENT * out.size
    return copies < saved


class _PairedOperand(NamedTuple):
    """An operand whose elements along the dimension `dim` are paired in a dense copy with the
    dimensions in this order."""

    view: BufferView
    dim: int
    order: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the pairs."""
        return self._replace_extent(-(-self.view.shape[self.dim] // 2))

    @property
    def nbytes(self) -> int:
        """The bytes of the copy."""
        return TensorType(self.shape, PAIR).nbytes

    def pairs(self, slot: int) -> BufferView:
        """Return the view of the copy in a slot."""
        type = TensorType(self.shape, PAIR)
        return BufferView(slot, 0, type.shape, row_major_strides(type, self.order), PAIR)

    def copy(self, pairs: BufferView, context: LoweringContext) -> list[Phase]:
        """Return the phases that make the copy."""
        view, dim = self.view, self.dim
        count = view.shape[dim]
        whole = self._replace_extent(count // 2)
        steps = [2 if d == dim else 1 for d in range(len(whole))]
        source = slice_view(view, [0] * len(whole), steps, whole)
        phases = copy_phases(
            source._replace(shape=(*whole, 2), strides=(*source.strides, view.strides[dim])),
            pairs._replace(
                shape=(*whole, 2), strides=(*pairs.strides, view.itemsize), dtype=view.dtype
            ),
            context,
        )
        if count % 2:
            # As an unsigned integer, the last element is extended with a zero after it.
            last = slice_dim(view, dim, count - 1, 1)._replace(dtype="u16")
            pair = slice_dim(pairs, dim, count // 2, 1)._replace(dtype="u32")
            phases += cast_phases(last, pair, context)
        return phases

    def _replace_extent(self, extent: int) -> tuple[int, ...]:
        return tuple(extent if d == self.dim else n for d, n in enumerate(self.view.shape))
