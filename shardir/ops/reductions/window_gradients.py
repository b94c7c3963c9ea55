"""Cotangents of window reductions.

The cotangent of a sum is a sum over the windows that contain an element; that of a maximum or
minimum goes to the selected element. Other cotangents expand the windows into strided slices: one
slice per position inside a window, with the shape of the result.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import accumulate, product

from shardir.ir.builder import Builder
from shardir.ir.module import Value
from shardir.ir.operation import Cotangents, Symbol
from shardir.ir.types import FLOATS, TensorType
from shardir.ops.reductions.window_geometry import WindowAttributes, dilated_size
from shardir.ops.type_checks import Ints


@dataclass(frozen=True, slots=True)
class WindowSlices:
    """The windows over tensors of shape `shape`, one for each element of the shape `places`."""

    b: Builder
    shape: Ints
    places: Ints
    attributes: WindowAttributes

    @property
    def _padded_shape(self) -> Ints:
        """The shape of a tensor after dilation and padding."""
        return tuple(
            dilated_size(n, step) + lo + hi
            for n, step, (lo, hi) in zip(
                self.shape, self.attributes.base_dilation, self.attributes.padding, strict=True
            )
        )

    @property
    def has_gaps(self) -> bool:
        """True if windows contain positions without an element."""
        return any(step > 1 for step in self.attributes.base_dilation) or any(
            map(any, self.attributes.padding)
        )

    def _starts(self) -> Iterator[Ints]:
        """Yield the start of the slice for each window position."""
        for position in product(*map(range, self.attributes.window)):
            yield tuple(
                p * step for p, step in zip(position, self.attributes.window_dilation, strict=True)
            )

    def slices(self, x: Value, fill: complex) -> list[Value]:
        """Return the elements of all windows at each position inside a window."""
        b = self.b
        if self.has_gaps:
            x = b.pad(
                x,
                b.full(fill, x.type.with_shape(())),
                low=tuple(lo for lo, _ in self.attributes.padding),
                high=tuple(hi for _, hi in self.attributes.padding),
                interior=tuple(step - 1 for step in self.attributes.base_dilation),
            )
        type = x.type.with_shape(self.places)
        return [
            b.slice(x, starts=starts, strides=self.attributes.strides, result=type)
            for starts in self._starts()
        ]

    def scatter_slices(self, parts: list[Value]) -> Value:
        """Return the transpose of `slices`: the parts added at their original positions."""
        b = self.b
        zero = b.full(0, parts[0].type.with_shape(()))
        placed = []
        for starts, part in zip(self._starts(), parts, strict=True):
            taken = map(dilated_size, self.places, self.attributes.strides)
            ends = (n - s - t for n, s, t in zip(self._padded_shape, starts, taken, strict=True))
            interior = tuple(stride - 1 for stride in self.attributes.strides)
            placed.append(b.pad(part, zero, low=starts, high=tuple(ends), interior=interior))
        total: Value = reduce(b.add, placed)
        if not self.has_gaps:
            return total
        total = b.pad(
            total,
            zero,
            low=tuple(-lo for lo, _ in self.attributes.padding),
            high=tuple(-hi for _, hi in self.attributes.padding),
            interior=(0,) * len(self.shape),
        )
        type = total.type.with_shape(self.shape)
        if total.type != type:
            starts = (0,) * len(self.shape)
            total = b.slice(
                total, starts=starts, strides=self.attributes.base_dilation, result=type
            )
        return total


def reduce_window_vjp(
    b: Builder, g: Value, x: Value, y: Value, *, attributes: WindowAttributes
) -> Cotangents:
    """Return the cotangent of the operand of a window reduction."""
    if y.type.size == 0 or x.type.size == 0:
        return (b.full(0, x.type),)
    if attributes.op == "add":
        return (_sum_cotangent(b, g, x.type, attributes),)
    if attributes.op == "mul":
        return (_product_cotangent(WindowSlices(b, x.type.shape, y.type.shape, attributes), g, x),)
    attrs = {**attributes.to_attrs(), "op": Symbol(attributes.op)}
    return (b.select_and_scatter(x, g, **attrs),)


def _sum_cotangent(b: Builder, g: Value, x: TensorType, attributes: WindowAttributes) -> Value:
    """Return sums over the transposed windows: strides and base dilation exchange roles."""
    window, window_dilation = attributes.window, attributes.window_dilation
    strides, base_dilation = attributes.strides, attributes.base_dilation
    pads = []
    for d, (lo, _) in enumerate(attributes.padding):
        inner = dilated_size(window[d], window_dilation[d])
        low = inner - 1 - lo
        size = dilated_size(x.shape[d], base_dilation[d])
        pads.append((low, size + inner - 1 - dilated_size(g.type.shape[d], strides[d]) - low))
    back: Value = b.reduce_window(
        g,
        op=Symbol("add"),
        window=window,
        strides=base_dilation,
        padding=tuple(pads),
        base_dilation=strides,
        window_dilation=window_dilation,
    )
    return back


def _product_cotangent(windows: WindowSlices, g: Value, x: Value) -> Value:
    """Return the cotangents of a product: the product of preceding and following factors."""
    b = windows.b
    factors = windows.slices(x, 1)
    before = list(accumulate([g, *factors[:-1]], b.mul))
    after = list(accumulate([*factors[:0:-1]], b.mul))[::-1]
    others = [b.mul(*pair) for pair in zip(before, after, strict=False)] + before[len(after) :]
    return windows.scatter_slices(others)


def select_and_scatter_vjp(
    b: Builder, g: Value, x: Value, source: Value, y: Value, *, attributes: WindowAttributes
) -> Cotangents:
    """Return the cotangent of the source: the elements at the selected positions."""
    if x.type.size == 0 or source.type.size == 0:
        return None, b.full(0, source.type)
    windows = WindowSlices(b, x.type.shape, source.type.shape, attributes)
    values, cotangents = windows.slices(x, 0), windows.slices(g, 0)
    exists: list[Value | None] = [None] * len(values)
    if windows.has_gaps:
        exists = [*windows.slices(b.full(True, x.type.with_dtype("bool")), False)]
    best, selected, any_yet = values[0], cotangents[0], exists[0]
    for value, cotangent, there in zip(values[1:], cotangents[1:], exists[1:], strict=True):
        better = b.gt(value, best) if attributes.op == "max" else b.lt(value, best)
        if x.type.dtype in FLOATS:
            better = b.or_(better, b.and_(b.ne(value, value), b.eq(best, best)))
        if there is not None:
            better = b.and_(there, b.or_(better, b.not_(any_yet)))
            any_yet = b.or_(any_yet, there)
        best = b.select(better, value, best)
        selected = b.select(better, cotangent, selected)
    return None, selected
