"""Copies of the matrices of fused products in the order in which products read them.

Each matrix is copied once, by phases before the kernel, and only if it is not in this order.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from shardir.backends.cpu.kernel_api import BufferView, LoweringContext, Phase
from shardir.backends.cpu.kernels.data_movement.copy import copy_phases
from shardir.backends.cpu.kernels.data_movement.interleave import interleave_phases
from shardir.backends.cpu.kernels.data_movement.view_transforms import slice_dim
from shardir.backends.cpu.kernels.elementwise.rules import lower_loop_nest
from shardir.backends.cpu.kernels.math import registers
from shardir.ir.module import Block, Op, Value
from shardir.ir.types import TensorType
from shardir.ops.control_flow.fused import fused
from shardir.ops.elementwise.elementwise import convert
from shardir.ops.shape.create import constant
from shardir.ops.shape.rearrangements import broadcast

PAIR = "u32"
"""The type of elements as which pairs of bf16 are copied."""


@dataclass
class MatrixCopies:
    """The copies of an operation: their phases, and the copy of each matrix and order."""

    context: LoweringContext
    phases: list[Phase] = field(default_factory=list)
    known: dict[tuple[object, ...], BufferView] = field(default_factory=dict)

    def dense(
        self,
        view: BufferView,
        dims: tuple[int, int],
        dtype: str,
        multiples: tuple[int, int] = (1, 1),
    ) -> BufferView:
        """Return a matrix with the dimensions `dims` innermost and without gaps; zeros extend both
        to multiples of numbers."""
        shape = _extend(view.shape, dims, multiples)
        inner = dims[1]
        item = registers.itemsize(dtype)
        is_dense = view.strides[inner] == item and view.strides[dims[0]] == shape[inner] * item
        if is_dense and view.dtype == dtype and shape == view.shape:
            return view
        key = view, dims, dtype, multiples
        if key not in self.known:
            target = self._allocate(shape, dims, dtype)
            self._clear_if_extended(target, view.shape)
            inside = target._replace(shape=view.shape)
            self.phases += convert_phases(view, inside, self.context)
            self.known[key] = target
        return self.known[key]

    def with_contiguous_rows(
        self, view: BufferView, dims: tuple[int, int], multiple: int
    ) -> BufferView:
        """Return a matrix whose second dimension is contiguous, and extended by zeros to a multiple
        of a number."""
        inner = dims[1]
        if view.strides[inner] == view.itemsize and view.shape[inner] % multiple == 0:
            return view
        return self.dense(view, dims, view.dtype, (1, multiple))

    def pairs(
        self, view: BufferView, dims: tuple[int, int], multiples: tuple[int, int] = (2, 1)
    ) -> BufferView:
        """Return a copy of a matrix of bf16 whose elements are pairs along the dimension `dims[0]`,
        in the order of `dense`."""
        key = view, dims, PAIR, multiples
        if key not in self.known:
            outer = dims[0]
            shape = list(_extend(view.shape, dims, multiples))
            count = view.shape[outer] // 2
            shape[outer] //= 2
            target = self._allocate(tuple(shape), dims, PAIR)
            self._clear_if_extended(target, _halve(view.shape, outer))
            places = target._replace(
                shape=(*target.shape, 2), strides=(*target.strides, view.itemsize), dtype=view.dtype
            )
            self._copy_pairs(slice_dim(view, outer, 0, 2 * count), places, outer)
            if view.shape[outer] % 2:
                last = slice_dim(view, outer, 2 * count, 1)
                place = slice_dim(slice_dim(places, outer, count, 1), len(shape), 0, 1)
                place = place._replace(shape=last.shape, strides=place.strides[:-1])
                self.phases += copy_phases(last, place, self.context)
            self.known[key] = target
        return self.known[key]

    def _copy_pairs(self, view: BufferView, places: BufferView, outer: int) -> None:
        """Copy pairs of rows to the first elements of `places`, whose last dimension is that of the
        values of a pair."""
        last = len(view.shape)
        shape, strides = list(view.shape), list(view.strides)
        shape[outer] //= 2
        strides[outer] *= 2
        source = view._replace(shape=(*shape, 2), strides=(*strides, view.strides[outer]))
        target = places._replace(shape=source.shape)
        values = [slice_dim(source, last, i, 1) for i in range(2)]
        self.phases += interleave_phases(values, target, last, self.context) or copy_phases(
            source, target, self.context
        )

    def _allocate(self, shape: tuple[int, ...], inner: tuple[int, int], dtype: str) -> BufferView:
        """Return temporary memory for a matrix in the order of `dense`."""
        order = [*(dim for dim in range(len(shape)) if dim not in inner), *inner]
        strides, step = [0] * len(order), registers.itemsize(dtype)
        for dim in reversed(order):
            strides[dim] = step
            step *= shape[dim]
        slot = self.context.temporary(max(step, 1))
        return BufferView(slot, 0, shape, tuple(strides), dtype)

    def _clear_if_extended(self, target: BufferView, shape: Sequence[int]) -> None:
        """Set the target to zero if it is larger than a shape."""
        if target.shape != tuple(shape):
            self.phases += zero_phases(target, self.context)


def _extend(
    shape: Sequence[int], dims: tuple[int, int], multiples: tuple[int, int]
) -> tuple[int, ...]:
    """Return a shape with two extents rounded up."""
    made = list(shape)
    for dim, multiple in zip(dims, multiples, strict=True):
        made[dim] = -(-made[dim] // multiple) * multiple
    return tuple(made)


def _halve(shape: Sequence[int], dim: int) -> tuple[int, ...]:
    """Return a shape with half of an extent, rounded down."""
    return tuple(size // 2 if i == dim else size for i, size in enumerate(shape))


def convert_phases(
    source: BufferView, target: BufferView, context: LoweringContext
) -> Sequence[Phase]:
    """Return the phases that copy a view, converted to the type of the target."""
    if source.dtype == target.dtype:
        return copy_phases(source, target, context)
    x, y = Value(type_of(source), "x"), Value(type_of(target), "y")
    phases = lower_loop_nest(Op(convert, (x,), (y,), {}), [source], [target], context)
    assert phases is not None
    return phases


def zero_phases(target: BufferView, context: LoweringContext) -> Sequence[Phase]:
    """Return the phases that set a view to zero."""
    one, all_ = Value(TensorType((), target.dtype), "zero"), Value(type_of(target), "zeros")
    ops = (
        Op(constant, (), (one,), {"value": 0}),
        Op(broadcast, (one,), (all_,), {"dims": ()}),
    )
    block = Block((), ops, (all_,))
    result = Value(type_of(target), "y")
    phases = lower_loop_nest(Op(fused, (), (result,), {}, (block,)), [], [target], context)
    assert phases is not None
    return phases


def type_of(view: BufferView) -> TensorType:
    """Return the type of a view."""
    return TensorType(view.shape, view.dtype)
