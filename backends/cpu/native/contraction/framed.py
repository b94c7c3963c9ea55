"""Padding copy: copies around a convolution so that its product has rows at a constant pitch.

The image is copied with zeros around it, so that no tap is outside, and operands whose features are
not contiguous are copied to another layout. The copies pay off for gradients of filters and for
images of one feature: see `strided_gemm`.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from math import prod
from typing import Any, NamedTuple

from shardir.backends.cpu.native.data import Context, Kernel, Phase, View, packed
from shardir.backends.cpu.native.llvm.text import Function, Module, Value
from shardir.backends.cpu.native.moves.copying import copy_phases
from shardir.ops.convolution_loops import sides
from shardir.types import TensorType

RANK = 2
"""Maximum number of padded spatial dimensions."""
SQUARE = 16
"""Minimum elements of a row, and minimum features, for which squares are transposed."""
TASK = 20_000.0
"""Minimum duration of a task in nanoseconds."""
RATE = 20.0
"""Bytes that are set to zero per nanosecond."""


class Framed(NamedTuple):
    """A convolution of copies; views in slot 0 are not allocated yet.

    The image is copied to `inside`, a view of its padded copy; `spatial` are its padded dimensions.
    `turned`: it is first transposed to `order` without padding.
    """

    attrs: dict[str, Any]
    image: View
    filter: View
    out: View
    inside: View
    spatial: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    order: tuple[int, ...]
    turned: bool

    @property
    def moved(self) -> int:
        """The number of elements that are copied before the product."""
        copies = (self.inside, self.image), (self.filter, self.filter)
        return sum(view.size for view, made in copies if made.slot == 0)

    @property
    def after(self) -> int:
        """The number of elements that are copied after the product."""
        return self.out.size if self.out.slot == 0 else 0

    def copied(
        self, x: View, w: View, out: View, context: Context
    ) -> tuple[list[Phase], "Framed", list[Phase]]:
        """Allocate the copies; return the phases before the product, the convolution, and the
        phases after it."""
        before: list[Phase] = []
        image, filter, made = self.image, self.filter, self.out
        if image.slot == 0:
            before, image = self._image(x, context)
        if filter.slot == 0:
            filter = filter._replace(slot=context.temporary(filter.nbytes))
            before += copy_phases(w, filter, context)
        after: list[Phase] = []
        if made.slot == 0:
            made = made._replace(slot=context.temporary(made.nbytes))
            after = copy_phases(made, out, context)
        return before, self._replace(image=image, filter=filter, out=made), after

    def _image(self, x: View, context: Context) -> tuple[list[Phase], View]:
        """Return the phases that copy the image, and the copy."""
        slot = context.temporary(self.image.nbytes)
        image, inside = (view._replace(slot=slot) for view in (self.image, self.inside))
        phases: list[Phase] = []
        if self.turned:
            strides = packed(TensorType(x.shape, x.dtype), self.order)
            plain = View(context.temporary(x.nbytes), 0, x.shape, strides, x.dtype)
            phases, x = copy_phases(x, plain, context), plain
        images = prod(image.shape[d] for d in self.order[: self.order.index(self.spatial[0])])
        phases += _borders(image, self.spatial, self.padding, images, context)
        return [*phases, *copy_phases(x, inside, context)], image


def framed(attrs: Mapping[str, Any], x: View, w: View, out: View) -> Framed | None:
    """Return the convolution of copies, if it is a gradient of a filter or of an image of one
    feature."""
    of, by, to = sides(attrs["dims"])
    if attrs.get("groups", 1) * attrs.get("batch_groups", 1) > 1 or not x.size or not out.size:
        return None
    if not 1 <= len(of.spatial) <= RANK or max(attrs["lhs_dilation"]) > 1:
        return None
    window = prod(w.shape[d] for d in by.spatial)
    # The dimension that is summed over is a batch, which is outermost; of a filter it is features.
    batch = w.shape[by.first] == 1 or w.strides[by.first] == max(w.strides)
    gradient = batch and window > prod(out.shape[d] for d in to.spatial) > 1
    if not gradient and x.shape[of.second] > 1:
        return None
    order, turned = (of.first, *of.spatial, of.second), False
    if gradient and x.strides[of.first] != x.itemsize and x.shape[of.first] < SQUARE:
        order = (of.second, of.first, *of.spatial)
    elif gradient:
        order = (of.second, *of.spatial, of.first)
        apart = x.strides[of.first] != x.itemsize
        turned = apart and x.shape[of.spatial[-1]] < SQUARE
    outer, inner = sorted((to.first, to.second), key=lambda dim: -out.strides[dim])
    padding = tuple((max(low, 0), max(high, 0)) for low, high in attrs["padding"])
    left = tuple((min(low, 0), min(high, 0)) for low, high in attrs["padding"])
    shape = list(x.shape)
    for d, (low, high) in zip(of.spatial, padding, strict=True):
        shape[d] += low + high
    strides = packed(TensorType(tuple(shape), x.dtype), order)
    image = View(0, 0, tuple(shape), strides, x.dtype)
    if (x.shape, x.strides) == (image.shape, strides):
        image = x
    pad_offset = sum(low * strides[d] for d, (low, _) in zip(of.spatial, padding, strict=True))
    return Framed(
        {**attrs, "padding": left}, image, _lying(w, (by.first, *by.spatial, by.second)),
        _lying(out, (outer, *to.spatial, inner)) if gradient else out,
        image._replace(offset=pad_offset, shape=x.shape), of.spatial, padding, order, turned,
    )  # fmt: skip


def _lying(view: View, order: Sequence[int]) -> View:
    """Return a dense view with the dimensions in this order; the view itself if its last dimension
    is contiguous."""
    if view.strides[order[-1]] == view.itemsize or view.shape[order[-1]] == 1:
        return view
    strides = packed(TensorType(view.shape, view.dtype), order)
    return View(0, 0, view.shape, strides, view.dtype)


def _borders(
    image: View, spatial: Sequence[int], padding: Sequence[tuple[int, int]], images: int,
    context: Context,
) -> list[Phase]:  # fmt: skip
    """Return the phase that zeroes the border of each image: before its first row, between rows,
    and after its last row."""
    if not any(map(any, padding)):
        return []
    rows, (top, bottom) = 1, (0, 0)
    if len(spatial) == RANK:
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
    cost = images * (head + rows * gap + tail) / RATE
    block = -(-images // max(1, min(int(cost / TASK), context.workers)))
    record = (
        image.slot, images, (rows + top + bottom) * pitch, rows, pitch, head, gap, tail, block
    )  # fmt: skip
    return [Phase(_kernel(), record, -(-images // block), cost, "border of an image")]


@cache
def _kernel() -> Kernel:
    return Kernel("zero_border", _text)


def _text() -> str:
    module = Module()
    f = Function(module, "zero_border", ["ptr", "ptr", "i64", "i64"])
    bases, record, task, _ = f.params
    slot, images, image, rows, pitch, head, gap, tail, block = (
        f.load(f.offset(record, 8 * i), "i64") for i in range(9)
    )
    base = f.load(f.offset(bases, slot, "ptr"), "ptr")
    module.declare("llvm.memset.p0.i64", "void", ["ptr", "i8", "i64", "i1"])

    def clear(at: Value, nbytes: Value) -> None:
        f.do(f"call void @llvm.memset.p0.i64(ptr {at}, i8 0, i64 {nbytes}, i1 false)")

    with f.loop(task * block, f.least((task + 1) * block, images)) as number:
        start = f.offset(base, number * image)
        clear(start, head)
        before = f.offset(start, head - gap)
        with f.loop(1, rows) as row:
            clear(f.offset(before, row * pitch), gap)
        clear(f.offset(start, image - tail), tail)
    f.leave()
    return module.text()
