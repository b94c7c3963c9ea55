"""Layout transform: computes convolutions with features first as if features were last.

In gradients of images neither rows nor K steps of the product are contiguous in the filter. If the
convolution had strides, positions of the result are not contiguous, and neither are those of the
image for long strides. Small images have lines shorter than tiles, so that the NCHW layout and
packing the filter are expensive. With features innermost all of these are contiguous runs.
Transposing the operands and the result takes less time than it saves. The same holds for gradients
of depthwise convolutions, and for gradients of filters whose tiles can read the copied image in
place.
"""

from collections.abc import Mapping
from math import prod
from typing import NamedTuple

import numpy as np

from shardir.backends.cpu.kernel_api import BufferView, LoweringContext, Phase, row_major_strides
from shardir.backends.cpu.kernels.conv.indirect_lhs import are_lines_addressable
from shardir.backends.cpu.kernels.conv.nchw_layout import POSITION_PITCHES
from shardir.backends.cpu.kernels.conv.row_selection import does_selection_pay_off
from shardir.backends.cpu.kernels.conv.tuning import (
    MAX_COPIES_PER_PATCH_ELEMENT,
    MAX_COSTLY_TRANSFORM_TIME_RATIO,
    MAX_TRANSFORM_TIME_RATIO,
    MIN_SAVED_COPY_RATIO,
    MIN_VECTOR_LANES,
    SQUARE_TRANSPOSE_NS_PER_ELEMENT,
)
from shardir.backends.cpu.kernels.data_movement.copy import copy_phases
from shardir.backends.cpu.kernels.gemm.element_arithmetic import arithmetic_of
from shardir.backends.cpu.kernels.gemm.grouped_steps import (
    are_channels_grouped_by_packing,
    can_group_channels,
)
from shardir.backends.cpu.kernels.gemm.microkernel import tile_for_columns
from shardir.backends.cpu.kernels.gemm.skinny_dispatch import operations_per_ns
from shardir.ir.operation import Attr
from shardir.ir.types import TensorType
from shardir.ops.contraction.convolution_factors import ConvolutionDims, parse_dims


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
    if attrs.get("groups", 1) * attrs.get("batch_groups", 1) > 1:
        return _plan_depthwise(attrs, x, w, out, context)
    of, by, to = parse_dims(attrs["dims"])
    window, places = (
        prod(view.shape[d] for d in side.spatial) for view, side in ((w, by), (out, to))
    )
    if window > places:
        return _plan_filter_gradient(attrs, x, w, out, context)
    is_strided = max(attrs["lhs_dilation"], default=1) > 1
    is_strided = is_strided or max(attrs["strides"], default=1) > max(POSITION_PITCHES)
    last = [(x, of.features_or_outputs), (w, by.features_or_outputs), (out, to.features_or_outputs)]
    if any(view.strides[dim] == view.itemsize for view, dim in last):
        return None
    if window == 1:
        return None
    steps = out.size * w.shape[by.batch_or_inputs] * window
    rate = operations_per_ns(out.itemsize, arithmetic_of(out.dtype).planes, context.machine)
    time = 2.0 * steps / prod(attrs["lhs_dilation"]) / rate
    # An even number of channels consists of pairs of K steps in the copies.
    has_groups = w.shape[by.batch_or_inputs] % 2 == 0 and can_group_channels(
        x.dtype, out.dtype, context.machine
    )
    has_avx512 = context.machine.vector_bytes == 64
    copies = SQUARE_TRANSPOSE_NS_PER_ELEMENT * (x.size + w.size + out.size)
    if is_strided or has_groups:
        ratio = MAX_COSTLY_TRANSFORM_TIME_RATIO
    elif (
        has_avx512
        and _are_steps_contiguous(w, by, window)
        and not _saves_more_than(MIN_SAVED_COPY_RATIO * copies, time, attrs, x, w, out)
    ):
        return None
    else:
        ratio = MAX_COSTLY_TRANSFORM_TIME_RATIO if has_avx512 else MAX_TRANSFORM_TIME_RATIO
    if copies >= ratio * time:
        return None
    inner = by.batch_or_inputs, by.features_or_outputs
    if has_groups and not are_channels_grouped_by_packing(x.dtype, out.dtype, context.machine):
        inner = inner[::-1]  # Groups of channels are contiguous in the copy.
    orders = (
        (of.batch_or_inputs, *of.spatial, of.features_or_outputs),
        (*by.spatial, *inner),
        (to.batch_or_inputs, *to.spatial, to.features_or_outputs),
    )
    return _plan_copies((x, w, out), orders, context)


def _plan_filter_gradient(
    attrs: Mapping[str, Attr],
    x: BufferView,
    w: BufferView,
    out: BufferView,
    context: LoweringContext,
) -> FeaturesLastConvolution | None:
    """Return the gradient of a filter from copies whose channels are contiguous, if tiles can read
    the copy of the image in place (`indirect_lhs`)."""
    of, by, to = parse_dims(attrs["dims"])
    features, arith = by.features_or_outputs, arithmetic_of(out.dtype)
    tile = tile_for_columns(arith, context.machine, w.shape[features])
    channels = x.shape[of.batch_or_inputs]
    if x.strides[of.batch_or_inputs] == x.itemsize or max(attrs["lhs_dilation"], default=1) > 1:
        return None
    if not are_lines_addressable(channels, x.dtype, arith, tile):
        return None
    steps = prod(w.shape[d] for d in (by.batch_or_inputs, *by.spatial))
    patches = channels * prod(out.shape[d] for d in to.spatial) * steps
    if x.size + w.size + out.size > MAX_COPIES_PER_PATCH_ELEMENT * patches:
        return None
    orders = (
        (of.features_or_outputs, *of.spatial, of.batch_or_inputs),
        (by.batch_or_inputs, *by.spatial, features),
        (*to.spatial, to.batch_or_inputs, to.features_or_outputs),
    )
    return _plan_copies((x, w, out), orders, context)


def _saves_more_than(
    least: float,
    time: float,
    attrs: Mapping[str, Attr],
    x: BufferView,
    w: BufferView,
    out: BufferView,
) -> bool:
    """Return whether the convolution of copies, which takes `time` ns, selects the rows that are
    inside of the image, and saves more than `least` ns by that."""
    of, by, to = parse_dims(attrs["dims"])
    inside = 1.0
    for d, k, p, stride, padding, dilation in zip(
        of.spatial, by.spatial, to.spatial, attrs["strides"], attrs["padding"],
        attrs["rhs_dilation"], strict=True,
    ):  # fmt: skip
        at = np.add.outer(
            stride * np.arange(out.shape[p]) - padding[0], dilation * np.arange(w.shape[k])
        )
        inside *= float(((at >= 0) & (at < x.shape[d])).mean())
    inputs, features = w.shape[by.batch_or_inputs], w.shape[by.features_or_outputs]
    saved = (1.0 - inside) * time
    return does_selection_pay_off(1.0 - inside, inputs, features) and saved > least


def _are_steps_contiguous(w: BufferView, by: ConvolutionDims, window: int) -> bool:
    """Return whether the inputs and the window of a filter are contiguous, with the window
    innermost."""
    return abs(w.strides[by.batch_or_inputs]) == window * w.itemsize


def _plan_depthwise(
    attrs: Mapping[str, Attr],
    x: BufferView,
    w: BufferView,
    out: BufferView,
    context: LoweringContext,
) -> FeaturesLastConvolution | None:
    """Return the depthwise convolution of copies whose channels are contiguous.

    Vectors of the depthwise kernel are contiguous in the result. Without copies these can only be
    neighbouring output positions, which a filter's gradient and, with a dilated image, each of its
    products do not have.
    """
    of, by, to = parse_dims(attrs["dims"])
    if attrs.get("batch_groups", 1) > 1:
        channels, others = of.batch_or_inputs, of.features_or_outputs
        is_depthwise = x.shape[channels] == attrs["batch_groups"]
    else:
        channels, others = of.features_or_outputs, of.batch_or_inputs
        is_depthwise = x.shape[channels] == attrs["groups"]
    count = x.shape[channels]
    if not is_depthwise or w.shape[by.features_or_outputs] != count or count < MIN_VECTOR_LANES:
        return None
    window, places = (
        prod(view.shape[d] for d in side.spatial) for view, side in ((w, by), (out, to))
    )
    is_filter_gradient = window > places > 1
    if not is_filter_gradient and max(attrs["lhs_dilation"], default=1) == 1:
        return None
    orders = (
        (others, *of.spatial, channels),
        (by.batch_or_inputs, *by.spatial, by.features_or_outputs),
        (to.batch_or_inputs, *to.spatial, to.features_or_outputs),
    )
    if all(
        view.strides[order[-1]] == view.itemsize
        for view, order in zip((x, w, out), orders, strict=True)
    ):
        return None
    return _plan_copies((x, w, out), orders, context)


def _plan_copies(
    views: tuple[BufferView, BufferView, BufferView],
    orders: tuple[tuple[int, ...], ...],
    context: LoweringContext,
) -> FeaturesLastConvolution:
    """Return the convolution of copies with the dimensions in these orders; a view whose last
    dimension is contiguous is used as it is."""
    x, w, out = views
    image, filter, result = (
        view if view.strides[order[-1]] == view.itemsize else _temporary_view(view, order, context)
        for view, order in zip(views, orders, strict=True)
    )
    before = [
        phase
        for view, copy in ((x, image), (w, filter))
        if copy is not view
        for phase in copy_phases(view, copy, context)
    ]
    after = copy_phases(result, out, context) if result is not out else []
    return FeaturesLastConvolution(before, image, filter, result, after)


def _temporary_view(
    view: BufferView, order: tuple[int, ...], context: LoweringContext
) -> BufferView:
    """Return a dense view in a temporary, with the dimensions in this order."""
    strides = row_major_strides(TensorType(view.shape, view.dtype), order)
    return BufferView(context.temporary(view.nbytes), 0, view.shape, strides, view.dtype)
