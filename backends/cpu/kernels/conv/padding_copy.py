"""Padding copy: copies around a convolution so that its product has rows at a constant pitch.

The image is copied with zeros around it, so that no tap is outside, and operands whose features are
not contiguous are copied to another layout. The copies pay off for gradients of filters and for
images of one feature: see `strided_gemm`.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from math import prod
from typing import NamedTuple

from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMModule, LLVMValue
from shardir.backends.cpu.kernel_api import (
    BufferView,
    Kernel,
    LoweringContext,
    Phase,
    row_major_strides,
)
from shardir.backends.cpu.kernels.data_movement.copy import copy_phases
from shardir.ir.operation import Attr
from shardir.ir.types import TensorType
from shardir.ops.contraction.convolution_factors import parse_dims

MAX_PADDED_DIMS = 2
"""Maximum number of padded spatial dimensions."""
MIN_TRANSPOSED_SQUARE = 16
"""Minimum elements of a row, and minimum features, for which squares are transposed."""
MIN_BORDER_TASK_NS = 20_000.0
"""Minimum duration of a task in nanoseconds."""
ZERO_FILL_BYTES_PER_NS = 20.0
"""Bytes that are set to zero per nanosecond."""


class PaddedConvolution(NamedTuple):
    """A convolution of copies; views in slot 0 are not allocated yet.

    The image is copied to `inside`, a view of its padded copy; `spatial` are its padded dimensions.
    `turned`: it is first transposed to `order` without padding.
    """

    attrs: dict[str, Attr]
    image: BufferView
    filter: BufferView
    out: BufferView
    inside: BufferView
    spatial: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    order: tuple[int, ...]
    is_transposed_first: bool

    @property
    def elements_copied_before(self) -> int:
        """The number of elements that are copied before the product."""
        copies = (self.inside, self.image), (self.filter, self.filter)
        return sum(view.size for view, made in copies if made.slot == 0)

    @property
    def elements_copied_after(self) -> int:
        """The number of elements that are copied after the product."""
        return self.out.size if self.out.slot == 0 else 0

    def allocate_copies(
        self, x: BufferView, w: BufferView, out: BufferView, context: LoweringContext
    ) -> tuple[list[Phase], "PaddedConvolution", list[Phase]]:
        """Allocate the copies; return the phases before the product, the convolution, and the
        phases after it."""
        before: list[Phase] = []
        image, filter, made = self.image, self.filter, self.out
        if image.slot == 0:
            before, image = self._copy_image(x, context)
        if filter.slot == 0:
            filter = filter._replace(slot=context.temporary(filter.nbytes))
            before += copy_phases(w, filter, context)
        after: list[Phase] = []
        if made.slot == 0:
            made = made._replace(slot=context.temporary(made.nbytes))
            after = copy_phases(made, out, context)
        return before, self._replace(image=image, filter=filter, out=made), after

    def _copy_image(
        self, x: BufferView, context: LoweringContext
    ) -> tuple[list[Phase], BufferView]:
        """Return the phases that copy the image, and the copy."""
        slot = context.temporary(self.image.nbytes)
        image, inside = (view._replace(slot=slot) for view in (self.image, self.inside))
        phases: list[Phase] = []
        if self.is_transposed_first:
            strides = row_major_strides(TensorType(x.shape, x.dtype), self.order)
            plain = BufferView(context.temporary(x.nbytes), 0, x.shape, strides, x.dtype)
            phases, x = copy_phases(x, plain, context), plain
        images = prod(image.shape[d] for d in self.order[: self.order.index(self.spatial[0])])
        phases += _zero_borders(image, self.spatial, self.padding, images, context)
        return [*phases, *copy_phases(x, inside, context)], image


def plan_padding_copy(
    attrs: Mapping[str, Attr], x: BufferView, w: BufferView, out: BufferView
) -> PaddedConvolution | None:
    """Return the convolution of copies, if it is a gradient of a filter or of an image of one
    feature."""
    of, by, to = parse_dims(attrs["dims"])
    if attrs.get("groups", 1) * attrs.get("batch_groups", 1) > 1 or not x.size or not out.size:
        return None
    if not 1 <= len(of.spatial) <= MAX_PADDED_DIMS or max(attrs["lhs_dilation"]) > 1:
        return None
    window = prod(w.shape[d] for d in by.spatial)
    # The dimension that is summed over is a batch, which is outermost; of a filter it is features.
    batch = w.shape[by.batch_or_inputs] == 1 or w.strides[by.batch_or_inputs] == max(w.strides)
    gradient = batch and window > prod(out.shape[d] for d in to.spatial) > 1
    if not gradient and x.shape[of.features_or_outputs] > 1:
        return None
    order, turned = (of.batch_or_inputs, *of.spatial, of.features_or_outputs), False
    if (
        gradient
        and x.strides[of.batch_or_inputs] != x.itemsize
        and x.shape[of.batch_or_inputs] < MIN_TRANSPOSED_SQUARE
    ):
        order = (of.features_or_outputs, of.batch_or_inputs, *of.spatial)
    elif gradient:
        order = (of.features_or_outputs, *of.spatial, of.batch_or_inputs)
        apart = x.strides[of.batch_or_inputs] != x.itemsize
        turned = apart and x.shape[of.spatial[-1]] < MIN_TRANSPOSED_SQUARE
    outer, inner = sorted(
        (to.batch_or_inputs, to.features_or_outputs), key=lambda dim: -out.strides[dim]
    )
    padding = tuple((max(low, 0), max(high, 0)) for low, high in attrs["padding"])
    left = tuple((min(low, 0), min(high, 0)) for low, high in attrs["padding"])
    shape = list(x.shape)
    for d, (low, high) in zip(of.spatial, padding, strict=True):
        shape[d] += low + high
    strides = row_major_strides(TensorType(tuple(shape), x.dtype), order)
    image = BufferView(0, 0, tuple(shape), strides, x.dtype)
    if (x.shape, x.strides) == (image.shape, strides):
        image = x
    pad_offset = sum(low * strides[d] for d, (low, _) in zip(of.spatial, padding, strict=True))
    return PaddedConvolution(
        {**attrs, "padding": left},
        image,
        _dense_view(w, (by.batch_or_inputs, *by.spatial, by.features_or_outputs)),
        _dense_view(out, (outer, *to.spatial, inner)) if gradient else out,
        image._replace(offset=pad_offset, shape=x.shape),
        of.spatial,
        padding,
        order,
        turned,
    )


def _dense_view(view: BufferView, order: Sequence[int]) -> BufferView:
    """Return a dense view with the dimensions in this order; the view itself if its last dimension
    is contiguous."""
    if view.strides[order[-1]] == view.itemsize or view.shape[order[-1]] == 1:
        return view
    strides = row_major_strides(TensorType(view.shape, view.dtype), order)
    return BufferView(0, 0, view.shape, strides, view.dtype)


def _zero_borders(
    image: BufferView, spatial: Sequence[int], padding: Sequence[tuple[int, int]], images: int,
    context: LoweringContext,
) -> list[Phase]:  # fmt: skip
    """Return the phase that zeroes the border of each image: before its first row, between rows,
    and after its last row."""
    if not any(map(any, padding)):
        return []
    rows, (top, bottom) = 1, (0, 0)
    if len(spatial) == MAX_PADDED_DIMS:
        top, bottom = padding[0]
        rows = image.shape[spatial[0]] - top - bottom
    left, right = padding[-1]
    pixel = image.strides[spatial[-1]]
    pitch = image.shape[spatial[-1]] * pixel
    head, gap, tail = (
        top * pitch + left * pixel,
        (left + right) * pixel,
        bottom * pitch + right * pixel,
    )
    cost = images * (head + rows * gap + tail) / ZERO_FILL_BYTES_PER_NS
    block = -(-images // max(1, min(int(cost / MIN_BORDER_TASK_NS), context.workers)))
    record = (
        image.slot, images, (rows + top + bottom) * pitch, rows, pitch, head, gap, tail, block
    )  # fmt: skip
    return [Phase(_border_kernel(), record, -(-images // block), cost, "border of an image")]


@cache
def _border_kernel() -> Kernel:
    return Kernel("zero_border", _text)


def _text() -> str:
    module = LLVMModule()
    f = LLVMFunction(module, "zero_border", ["ptr", "ptr", "i64", "i64"])
    bases, record, task, _ = f.params
    slot, images, image, rows, pitch, head, gap, tail, block = (
        f.load(f.offset(record, 8 * i), "i64") for i in range(9)
    )
    base = f.load(f.offset(bases, slot, "ptr"), "ptr")
    module.declare("llvm.memset.p0.i64", "void", ["ptr", "i8", "i64", "i1"])

    def clear(at: LLVMValue, nbytes: LLVMValue) -> None:
        f.do(f"call void @llvm.memset.p0.i64(ptr {at}, i8 0, i64 {nbytes}, i1 false)")

    with f.loop(task * block, f.umin((task + 1) * block, images)) as number:
        start = f.offset(base, number * image)
        clear(start, head)
        before = f.offset(start, head - gap)
        with f.loop(1, rows) as row:
            clear(f.offset(before, row * pitch), gap)
        clear(f.offset(start, image - tail), tail)
    f.ret()
    return module.text()
