"""The lowering rule of `convolution`: a product of patches of the image with the filter.

Rows are output positions, K steps are the elements of a window; packing gathers the patches, so
that the im2col matrix is never stored as a whole. An image with `lhs_dilation` (as in gradients of
strided convolutions) becomes several convolutions of the undilated image, one for each remainder of
an output position: no product with an inserted zero is computed.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import gcd, prod
from typing import NamedTuple

from shardir.backends.cpu.codegen.target import HostDescription
from shardir.backends.cpu.kernel_api import BufferView, LoweringContext, Phase
from shardir.backends.cpu.kernels.conv.channel_pairs import lower_channel_pairs
from shardir.backends.cpu.kernels.conv.layout_transform import plan_features_last
from shardir.backends.cpu.kernels.conv.tuning import MAX_REMAINDERS, MIN_INNERMOST_STEPS
from shardir.backends.cpu.kernels.gemm.element_arithmetic import arithmetic_of, can_widen
from shardir.backends.cpu.kernels.gemm.grouped_steps import (
    can_group_channels,
    has_grouped_steps,
    is_run_of_pairs,
)
from shardir.backends.cpu.kernels.gemm.matrix_product import (
    ImagePatches,
    MatrixProduct,
    ProductLoop,
    merge_loops,
)
from shardir.backends.cpu.kernels.gemm.product_dispatch import lower_product
from shardir.ir.module import Op
from shardir.ir.operation import Attr
from shardir.ops.contraction.convolution_factors import ConvolutionDims, parse_dims

MAX_CHECKED_DIMS = 3
"""Maximum number of dimensions that the kernels can check."""


def convolution_rule(
    op: Op, operands: Sequence[BufferView], results: Sequence[BufferView], context: LoweringContext
) -> Sequence[Phase] | None:
    """Lower a convolution to products of patches with filters; return None if a type or the number
    of checked dimensions is not supported."""
    (out,) = results
    arith = arithmetic_of(out.dtype)
    if not all(can_widen(view.dtype, arith) for view in operands):
        return None
    image, filter = operands
    transformed = plan_features_last(op.attrs, image, filter, out, context)
    before, image, filter, out, after = transformed or ([], image, filter, out, [])
    if remainder_count(op.attrs, out) > MAX_REMAINDERS:
        return None
    products = list(convolution_products(op.attrs, image, filter, out, context.machine))
    if any(work.patches and len(work.patches.starts) > MAX_CHECKED_DIMS for work in products):
        return None
    made = []
    if not any(has_grouped_steps(work) for work in products):
        made = lower_channel_pairs(
            op.attrs,
            image,
            filter,
            out,
            lambda x, w: next(convolution_products(op.attrs, x, w, out, context.machine)),
            context,
            "convolution",
        )
    made = made or [
        phase for work in products for phase in lower_product(work, context, "convolution")
    ]
    return [*before, *made, *after]


def remainder_count(attrs: Mapping[str, Attr], out: BufferView) -> int:
    """Return the number of products of a convolution of a dilated image: one for each remainder."""
    places = [out.shape[p] for p in parse_dims(attrs["dims"])[2].spatial]
    return prod(
        min(spread // gcd(stride, spread), size)
        for size, stride, spread in zip(
            places, attrs["strides"], attrs["lhs_dilation"], strict=True
        )
    )


def convolution_order(op: Op, operands: Sequence[BufferView]) -> Sequence[int]:
    """Return the layout of the result: that of the image; features innermost if they are innermost
    in the filter."""
    of, by, to = parse_dims(op.attrs["dims"])
    image, filter = operands
    like = {to.batch_or_inputs: of.batch_or_inputs, to.features_or_outputs: of.features_or_outputs}
    like |= dict(zip(to.spatial, of.spatial, strict=True))
    last = filter.strides[by.features_or_outputs] == filter.itemsize
    return sorted(
        like,
        key=lambda dim: (last and dim == to.features_or_outputs, -abs(image.strides[like[dim]])),
    )


class _SpatialAxis(NamedTuple):
    """Output positions and taps along a spatial dimension.

    Position q and tap t read the image at `start + q * stride + t * dilation`; positions are every
    `place_step`th from `first_place`, taps every `tap_step`th from `first_tap`.
    """

    places: int
    taps: int
    start: int
    stride: int
    dilation: int
    size: int
    first_place: int
    place_step: int
    first_tap: int
    tap_step: int

    @property
    def is_checked(self) -> bool:
        """True if any tap of an output position is outside the image."""
        if not self.places or not self.taps:
            return False
        last = self.start + (self.places - 1) * self.stride + (self.taps - 1) * self.dilation
        return self.start < 0 or last >= self.size


def convolution_products(
    attrs: Mapping[str, Attr],
    x: BufferView,
    w: BufferView,
    out: BufferView,
    machine: HostDescription,
) -> Iterator[MatrixProduct]:
    """Yield the products of a convolution; together they write every element of the result."""
    of, by, to = parse_dims(attrs["dims"])
    axes = [
        list(_split_axis(x.shape[d], w.shape[k], out.shape[p], *config))
        for d, k, p, *config in zip(
            of.spatial, by.spatial, to.spatial, attrs["strides"], attrs["padding"],
            attrs["lhs_dilation"], attrs["rhs_dilation"], strict=True,
        )
    ]  # fmt: skip
    for chosen in product(*axes):
        yield _convolution_product(attrs, x, w, out, chosen, machine)


def _split_axis(
    size: int, window: int, places: int, stride: int, padding: tuple[int, int], spread: int,
    dilation: int,
) -> Iterator[_SpatialAxis]:  # fmt: skip
    """Yield the axis of an undilated image; for a dilated one, an axis for each remainder."""
    step = spread // gcd(stride, spread)
    every = spread // gcd(dilation, spread)
    for first in range(min(step, places)):
        at = first * stride - padding[0]
        tap = next(
            (t for t in range(min(every, window)) if (at + t * dilation) % spread == 0), None
        )
        yield _SpatialAxis(
            -(-(places - first) // step),
            0 if tap is None else -(-(window - tap) // every),
            0 if tap is None else (at + tap * dilation) // spread,
            step * stride // spread,
            every * dilation // spread,
            size,
            first,
            step,
            tap or 0,
            every,
        )


def _convolution_product(
    attrs: Mapping[str, Attr],
    x: BufferView,
    w: BufferView,
    out: BufferView,
    axes: Sequence[_SpatialAxis],
    machine: HostDescription,
) -> MatrixProduct:
    of, by, to = parse_dims(attrs["dims"])
    groups, batch_groups = attrs.get("groups", 1), attrs.get("batch_groups", 1)
    xs, ws, outs = x.strides, w.strides, out.strides
    features = w.shape[by.features_or_outputs] // (groups * batch_groups)
    inputs, images = w.shape[by.batch_or_inputs], out.shape[to.batch_or_inputs]
    checked = [d for d, axis in enumerate(axes) if axis.is_checked]

    # A row of an image of few features is one line of elements, and so is a row of a window.
    line = _find_contiguous_tap_dim(axes, inputs, (xs, of), (ws, by), x.itemsize)

    def steps(d: int, by: int) -> tuple[int, ...]:
        return tuple(by * scales[d] if each == d else 0 for each in checked)

    scales = [inputs if d == line else 1 for d in range(len(axes))]
    no_steps = steps(-1, 0)
    group = ProductLoop(
        groups * batch_groups,
        inputs * xs[of.features_or_outputs] if groups > 1 else images * xs[of.batch_or_inputs],
        features * ws[by.features_or_outputs],
        features * outs[to.features_or_outputs],
        no_steps,
    )
    image = ProductLoop(images, xs[of.batch_or_inputs], 0, outs[to.batch_or_inputs], no_steps)
    along = tuple(int(d == line) for d in checked)
    channel = ProductLoop(inputs, xs[of.features_or_outputs], ws[by.batch_or_inputs], 0, along)
    feature = ProductLoop(
        features, 0, ws[by.features_or_outputs], outs[to.features_or_outputs], no_steps
    )
    rows, taps = [image], []
    move_x, move_w, move_out = 0, 0, 0
    for d, axis in enumerate(axes):
        sx, sw, so = xs[of.spatial[d]], ws[by.spatial[d]], outs[to.spatial[d]]
        move_x += axis.start * sx
        move_w += axis.first_tap * sw
        move_out += axis.first_place * so
        rows.append(
            ProductLoop(
                axis.places, axis.stride * sx, 0, axis.place_step * so, steps(d, axis.stride)
            )
        )
        taps.append(
            ProductLoop(
                axis.taps, axis.dilation * sx, axis.tap_step * sw, 0, steps(d, axis.dilation)
            )
        )
    inner = sorted([channel, *taps], key=lambda loop: -abs(loop.lhs) - abs(loop.rhs))
    starts = tuple(axes[d].start * scales[d] for d in checked)
    sizes = tuple(axes[d].size * scales[d] for d in checked)
    lines = merge_loops(sorted(rows, key=lambda loop: (-abs(loop.lhs), -abs(loop.out))))
    steps_of_sum = merge_loops(inner)
    if not _are_pairs_packable(steps_of_sum, x, w, out, machine):
        steps_of_sum = _move_long_loop_innermost(steps_of_sum, lines, x.itemsize)
    # A product with one loop of each kind is a plain matrix product.
    several = len(steps_of_sum) > 1 or (features > 1 and len(lines) > 1)
    patches = ImagePatches("lhs", starts, sizes) if checked or several else None
    return MatrixProduct(
        x._replace(offset=x.offset + move_x),
        w._replace(offset=w.offset + move_w),
        out._replace(offset=out.offset + move_out),
        merge_loops([group]),
        lines,
        merge_loops([feature]),
        steps_of_sum,
        machine,
        patches,
    )


def _find_contiguous_tap_dim(
    axes: Sequence[_SpatialAxis], inputs: int, image: tuple[Sequence[int], ConvolutionDims],
    filter: tuple[Sequence[int], ConvolutionDims], item: int,
) -> int:  # fmt: skip
    """Return the checked dimension whose taps are contiguous, including features; -1 if none is.

    Along that dimension positions count elements rather than groups of features: the same elements
    are outside, and the K steps along a row of a window form one loop.
    """
    (xs, of), (ws, by) = image, filter
    for d, axis in enumerate(axes):
        if (
            1 < inputs < MIN_INNERMOST_STEPS
            and axis.is_checked
            and axis.dilation == axis.tap_step == 1
            and (xs[of.features_or_outputs], xs[of.spatial[d]]) == (item, inputs * item)
            and ws[by.spatial[d]] == inputs * ws[by.batch_or_inputs]
        ):
            return d
    return -1


def _are_pairs_packable(
    loops: tuple[ProductLoop, ...],
    x: BufferView,
    w: BufferView,
    out: BufferView,
    machine: HostDescription,
) -> bool:
    """Return whether packing makes pairs of the steps of the innermost loop, which are contiguous
    in both operands (see `pair_packing`)."""
    return (
        len(loops) > 1
        and is_run_of_pairs(loops[-1])
        and loops[-1].lhs == loops[-1].rhs == x.itemsize
        and x.dtype == w.dtype
        and can_group_channels(x.dtype, out.dtype, machine)
    )


def _move_long_loop_innermost(
    loops: tuple[ProductLoop, ...], lines: tuple[ProductLoop, ...], item: int
) -> tuple[ProductLoop, ...]:
    """Move a long loop innermost, since each segment of steps has a fixed cost.

    The cost is higher if contiguous lines leave the image one after the other.
    """
    if not loops or loops[-1].extent >= MIN_INNERMOST_STEPS:
        return loops
    last = loops[-1]
    position_steps = lines[-1].position_strides if lines and abs(lines[-1].lhs) <= 2 * item else ()

    def leaves(loop: ProductLoop) -> bool:
        return any(a and b for a, b in zip(loop.position_strides, position_steps, strict=False))

    def worth(i: int) -> tuple[bool, bool, int]:
        loop, stays = loops[i], not any(loops[i].position_strides)
        return not leaves(loop), stays or leaves(last), loop.extent << stays

    best = max(range(len(loops)), key=worth)
    if loops[best].extent <= last.extent and leaves(loops[best]) == leaves(last):
        return loops
    return (*loops[:best], *loops[best + 1 :], loops[best])
