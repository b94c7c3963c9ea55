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
            if shape != view.shape:
                self.phases += zero_phases(target, self.context)
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

    def in_groups(
        self, view: BufferView, dims: tuple[int, int], group: int, multiples: tuple[int, int]
    ) -> BufferView:
        """Return a copy of a matrix with groups of `group` elements along the dimension `dims[0]`
        innermost, in the order of the groups, then of `dims[1]`; zeros extend both dimensions.

        The stride along `dims[0]` is that of a group, divided by its elements.
        """
        key = view, dims, group, multiples
        if key not in self.known:
            outer, last = dims[0], len(view.shape)
            shape = _extend(view.shape, dims, multiples)
            split = tuple(size // group if i == outer else size for i, size in enumerate(shape))
            target = self._allocate((*split, group), (*dims, last), view.dtype)
            if shape != view.shape:
                self.phases += zero_phases(target, self.context)
            self._copy_groups(view, target, outer)
            strides = (*target.strides[:outer], target.strides[outer] // group,
                       *target.strides[outer + 1 : -1])  # fmt: skip
            self.known[key] = target._replace(shape=shape, strides=strides)
        return self.known[key]

    def _copy_groups(self, view: BufferView, target: BufferView, outer: int) -> None:
        """Copy a matrix to groups, whose elements are the last dimension of the target."""
        group, last = target.shape[-1], len(view.shape)
        count, rest = divmod(view.shape[outer], group)
        whole = slice_dim(view, outer, 0, count * group)
        shape, strides = list(whole.shape), list(whole.strides)
        shape[outer], strides[outer] = count, group * strides[outer]
        source = view._replace(shape=(*shape, group), strides=(*strides, view.strides[outer]))
        places = target._replace(shape=source.shape)
        values = [slice_dim(source, last, i, 1) for i in range(group)]
        self.phases += interleave_phases(values, places, last, self.context) or copy_phases(
            source, places, self.context
        )
        if rest:
            tail = slice_dim(view, outer, count * group, rest)
            place = slice_dim(target, outer, count, 1)
            strides = list(place.strides[:-1])
            strides[outer] = place.strides[-1]
            place = place._replace(shape=tail.shape, strides=tuple(strides))
            self.phases += copy_phases(tail, place, self.context)

    def _allocate(self, shape: tuple[int, ...], inner: tuple[int, ...], dtype: str) -> BufferView:
        """Return temporary memory for a matrix with some dimensions innermost, in their order."""
        order = [*(dim for dim in range(len(shape)) if dim not in inner), *inner]
        strides, step = [0] * len(order), registers.itemsize(dtype)
        for dim in reversed(order):
            strides[dim] = step
            step *= shape[dim]
        slot = self.context.temporary(max(step, 1))
        return BufferView(slot, 0, shape, tuple(strides), dtype)


def _extend(
    shape: Sequence[int], dims: tuple[int, int], multiples: tuple[int, int]
) -> tuple[int, ...]:
    """Return a shape with two extents rounded up."""
    made = list(shape)
    for dim, multiple in zip(dims, multiples, strict=True):
        made[dim] = -(-made[dim] // multiple) * multiple
    return tuple(made)


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
