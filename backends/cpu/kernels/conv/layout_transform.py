"""Layout transform: computes convolutions with features first as if features were last.

In gradients of images neither rows nor K steps of the product are contiguous in the filter. If the
convolution had strides, positions of the result are not contiguous, and neither are those of the
image for long strides. Small images have lines shorter than tiles, so that the NCHW layout and
packing the filter are expensive. With features innermost all of these are contiguous runs.
Transposing the operands and the result takes less time than it saves.
"""

from collections.abc import Mapping
from math import prod
from typing import NamedTuple

from shardir.backends.cpu.kernel_api import BufferView, LoweringContext, Phase, row_major_strides
from shardir.backends.cpu.kernels.conv.nchw_layout import POSITION_PITCHES
from shardir.backends.cpu.kernels.conv.tuning import (
    MAX_STRIDED_TRANSFORM_TIME_RATIO,
    MAX_TRANSFORM_TIME_RATIO,
    SQUARE_TRANSPOSE_NS_PER_ELEMENT,
)
from shardir.backends.cpu.kernels.data_movement.copy import copy_phases
from shardir.backends.cpu.kernels.gemm.skinny_dispatch import operations_per_ns
from shardir.ir.operation import Attr
from shardir.ir.types import TensorType
from shardir.ops.contraction.convolution_factors import parse_dims


class FeaturesLastConvolution(NamedTuple):
    """A convolution of copies, and the phases before and after it."""

    before: list[Phase]
    image: BufferView
    filter: BufferView
    out: BufferView
    after: list[Phase]


def plan_features_last(
    attrs: Mapping[str, Attr],
    x: BufferView,
    w: BufferView,
    out: BufferView,
    context: LoweringContext,
) -> FeaturesLastConvolution | None:
    """Return the convolution of transposed copies, or None if the transform does not pay off."""
    of, by, to = parse_dims(attrs["dims"])
    is_strided = max(attrs["lhs_dilation"], default=1) > 1
    is_strided = is_strided or max(attrs["strides"], default=1) > max(POSITION_PITCHES)
    last = [(x, of.features_or_outputs), (w, by.features_or_outputs), (out, to.features_or_outputs)]
    if attrs.get("groups", 1) * attrs.get("batch_groups", 1) > 1 or any(
        view.strides[dim] == view.itemsize for view, dim in last
    ):
        return None
    window, places = (
        prod(view.shape[d] for d in side.spatial) for view, side in ((w, by), (out, to))
    )
    # Larger windows are gradients of filters.
    if not 1 < window <= places:
        return None
    steps = out.size * w.shape[by.batch_or_inputs] * window
    time = (
        2.0 * steps / prod(attrs["lhs_dilation"]) / operations_per_ns(out.itemsize, context.machine)
    )
    ratio = MAX_STRIDED_TRANSFORM_TIME_RATIO if is_strided else MAX_TRANSFORM_TIME_RATIO
    if SQUARE_TRANSPOSE_NS_PER_ELEMENT * (x.size + w.size + out.size) >= ratio * time:
        return None
    image = _temporary_view(x, (of.batch_or_inputs, *of.spatial, of.features_or_outputs), context)
    filter = _temporary_view(w, (*by.spatial, by.batch_or_inputs, by.features_or_outputs), context)
    result = _temporary_view(
        out, (to.batch_or_inputs, *to.spatial, to.features_or_outputs), context
    )
    before = [*copy_phases(x, image, context), *copy_phases(w, filter, context)]
    return FeaturesLastConvolution(before, image, filter, result, copy_phases(result, out, context))


def _temporary_view(
    view: BufferView, order: tuple[int, ...], context: LoweringContext
) -> BufferView:
    """Return a dense view in a temporary, with the dimensions in this order."""
    strides = row_major_strides(TensorType(view.shape, view.dtype), order)
    return BufferView(context.temporary(view.nbytes), 0, view.shape, strides, view.dtype)
