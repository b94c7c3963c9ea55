"""The iteration space of a group as few axes, and the strides of its tensors along them.

Adjacent axes that all tensors traverse together are merged. A program of a kernel processes a tile:
a range of the flattened kept axes and a range of the flattened reduced axes.

    layer norm over f32[8, 128, 512], dims=[2]:   kept 1024 (= 8 x 128), reduced 512
    batch norm over f32[8, 64, 32, 32], dims=[0, 2, 3]:   kept 64, reduced 8 x 1024
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from shardir import ops
from shardir.ir.module import Block, Op, Value
from shardir.ops.control_flow.fused import (
    REDUCTIONS,
    FusedLoopNest,
    build_loop_nest,
)
from shardir.ops.control_flow.loop_unification import (
    LoopMapping,
    live_values,
    non_unit_dims,
)
from shardir.ops.shape.create import constant, iota


@dataclass(frozen=True, slots=True)
class AxisRun:
    """Consecutive axes that a tensor traverses with one index and one stride."""

    axes: tuple[int, ...]
    stride: int


@dataclass(frozen=True, slots=True)
class GroupLayout:
    """The axes of a group, outermost first."""

    extents: tuple[int, ...]
    reduced: frozenset[int]
    axes_of: Mapping[Value, tuple[int, ...]]
    """The axes of each value that the results depend on."""
    strides: Mapping[Value, Mapping[int, int]]
    """Strides along each axis, for values that are loaded, stored or iotas."""

    @property
    def kept_axes(self) -> tuple[int, ...]:
        return tuple(axis for axis in range(len(self.extents)) if axis not in self.reduced)

    @property
    def reduced_axes(self) -> tuple[int, ...]:
        """Return the axes that reductions remove."""
        return tuple(sorted(self.reduced))

    def size(self, axes: Sequence[int]) -> int:
        size = 1
        for axis in axes:
            size *= self.extents[axis]
        return size

    def runs(self, value: Value, among: Sequence[int]) -> tuple[AxisRun, ...]:
        """Return the fewest runs that traverse a tensor along some axes."""
        strides = self.strides[value]
        runs: list[AxisRun] = []
        for place, axis in enumerate(among):
            if axis not in strides:
                continue
            stride = strides[axis]
            last = runs[-1] if runs else None
            if (
                last is not None
                and last.axes[-1] == among[place - 1]
                and last.stride == stride * self.extents[axis]
            ):
                runs[-1] = AxisRun((*last.axes, axis), stride)
            else:
                runs.append(AxisRun((axis,), stride))
        return tuple(runs)


def layout_of(block: Block) -> GroupLayout:
    """Return the axes of a block, merged where all tensors traverse them together."""
    nest = build_loop_nest(block)
    live = live_values(block)
    walks = _traversed_axes(block, nest, live)
    groups: list[list[int]] = []
    for axis in _order(block, nest, live):
        if groups and _can_merge(groups[-1][-1], axis, nest, tuple(walks.values())):
            groups[-1].append(axis)
        else:
            groups.append([axis])
    number = {axis: place for place, group in enumerate(groups) for axis in group}
    extents = []
    for group in groups:
        size = 1
        for axis in group:
            size *= nest.extents[axis]
        extents.append(size)
    lies = {
        value: tuple(dict.fromkeys(number[axis] for axis in mapping))
        for value, mapping in nest.mappings.items()
        if value in live and -1 not in mapping
    }
    return GroupLayout(
        tuple(extents),
        frozenset(number[axis] for axis in nest.reduced_loops),
        lies,
        {value: _strides(mapping, nest, number) for value, mapping in walks.items()},
    )


def _order(block: Block, nest: FusedLoopNest, live: Set[Value]) -> tuple[int, ...]:
    """Return the axes in the order of the first value that has all of them."""
    every = range(len(nest.extents))
    ends = [op.operands[0] for op in block.ops if op.spec in REDUCTIONS and op.result in live]
    for value in (*ends, *block.returns):
        if len(nest.mappings[value]) == len(every):
            return nest.mappings[value]
    return tuple(every)


def _traversed_axes(
    block: Block, nest: FusedLoopNest, live: Set[Value]
) -> Mapping[Value, LoopMapping]:
    """Return the axes of the values that are loaded, stored or iotas."""
    found = {
        value: nest.mappings[value] for value in (*block.params, *block.returns) if value in live
    }
    for op in block.ops:
        if op.spec is iota and op.result in live:
            along = dict(zip(non_unit_dims(op.result.type), nest.mappings[op.result], strict=True))
            axis = along.get(op.attrs["dim"])
            found[op.result] = () if axis is None else (axis,)
    return found


def _can_merge(outer: int, inner: int, nest: FusedLoopNest, walks: Sequence[LoopMapping]) -> bool:
    """Return whether each value has both of two adjacent axes consecutively, or neither."""
    if (outer in nest.reduced_loops) != (inner in nest.reduced_loops):
        return False
    for mapping in walks:
        if (outer in mapping) != (inner in mapping):
            return False
        if outer in mapping and mapping.index(inner) != mapping.index(outer) + 1:
            return False
    return True


def _strides(
    mapping: LoopMapping, nest: FusedLoopNest, number: Mapping[int, int]
) -> Mapping[int, int]:
    """Return the strides of a dense tensor; merged axes have the stride of the innermost."""
    found: dict[int, int] = {}
    step = 1
    for axis in reversed(mapping):
        found.setdefault(number[axis], step)
        step *= nest.extents[axis]
    return found


def needs_no_line(op: Op) -> bool:
    """Return whether an operation needs no line in a kernel: a constant, or a change of shape."""
    return op.spec is constant or op.spec in (ops.broadcast, ops.reshape, ops.stop_gradient)
