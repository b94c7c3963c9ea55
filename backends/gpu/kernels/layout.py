"""The loops of a group as few axes, and where its tensors have the elements they need.

Axes that all tensors walk together are one. A program of a kernel walks a tile: some of the kept
axes, counted by one number, and some of those that reductions end, counted by another.

    layer norm over f32[8, 128, 512], dims=[2]:   kept 1024 (= 8 x 128), reduced 512
    batch norm over f32[8, 64, 32, 32], dims=[0, 2, 3]:   kept 64, reduced 8 x 1024
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from shardir.ir.module import Block, Op, Value
from shardir.ops.control_flow.fused import (
    REDUCTIONS,
    FusedLoopNest,
    LoopMapping,
    build_loop_nest,
    live_values,
    non_unit_dims,
)
from shardir.ops.shape.create import constant, iota


@dataclass(frozen=True, slots=True)
class Run:
    """Axes in order, which a tensor walks as one line: a number and a step."""

    axes: tuple[int, ...]
    stride: int


@dataclass(frozen=True, slots=True)
class Layout:
    """The axes of a group, outermost first."""

    extents: tuple[int, ...]
    reduced: frozenset[int]
    lies: Mapping[Value, tuple[int, ...]]
    """The axes along which each value lies, for the values that results are made of."""
    strides: Mapping[Value, Mapping[int, int]]
    """How far apart neighbours along an axis are, for what is loaded, stored or counted."""

    @property
    def kept(self) -> tuple[int, ...]:
        return tuple(axis for axis in range(len(self.extents)) if axis not in self.reduced)

    @property
    def ended(self) -> tuple[int, ...]:
        """The axes that reductions end."""
        return tuple(sorted(self.reduced))

    def size(self, axes: Sequence[int]) -> int:
        size = 1
        for axis in axes:
            size *= self.extents[axis]
        return size

    def runs(self, value: Value, among: Sequence[int]) -> tuple[Run, ...]:
        """How a tensor is walked along some axes: as few lines as there can be."""
        strides = self.strides[value]
        runs: list[Run] = []
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
                runs[-1] = Run((*last.axes, axis), stride)
            else:
                runs.append(Run((axis,), stride))
        return tuple(runs)


def layout_of(block: Block) -> Layout:
    """The axes of a block, joined where no tensor tells them apart."""
    nest = build_loop_nest(block)
    live = live_values(block)
    walks = _walks(block, nest, live)
    groups: list[list[int]] = []
    for axis in _order(block, nest, live):
        if groups and _are_one(groups[-1][-1], axis, nest, tuple(walks.values())):
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
        value: tuple(dict.fromkeys(number[axis] for axis in lie))
        for value, lie in nest.mappings.items()
        if value in live and -1 not in lie
    }
    return Layout(
        tuple(extents),
        frozenset(number[axis] for axis in nest.reduced_loops),
        lies,
        {value: _strides(lie, nest, number) for value, lie in walks.items()},
    )


def _order(block: Block, nest: FusedLoopNest, live: Set[Value]) -> tuple[int, ...]:
    """The axes as the values that lie along all of them have them."""
    every = range(len(nest.extents))
    ends = [op.operands[0] for op in block.ops if op.spec in REDUCTIONS and op.result in live]
    for value in (*ends, *block.returns):
        if len(nest.mappings[value]) == len(every):
            return nest.mappings[value]
    return tuple(every)


def _walks(block: Block, nest: FusedLoopNest, live: Set[Value]) -> Mapping[Value, LoopMapping]:
    """The axes along which things are loaded, stored and counted."""
    found = {
        value: nest.mappings[value] for value in (*block.params, *block.returns) if value in live
    }
    for op in block.ops:
        if op.spec is iota and op.result in live:
            along = dict(zip(non_unit_dims(op.result.type), nest.mappings[op.result], strict=True))
            axis = along.get(op.attrs["dim"])
            found[op.result] = () if axis is None else (axis,)
    return found


def _are_one(outer: int, inner: int, nest: FusedLoopNest, walks: Sequence[LoopMapping]) -> bool:
    """Whether everything walks two neighbouring axes as one, or neither of them."""
    if (outer in nest.reduced_loops) != (inner in nest.reduced_loops):
        return False
    for lie in walks:
        if (outer in lie) != (inner in lie):
            return False
        if outer in lie and lie.index(inner) != lie.index(outer) + 1:
            return False
    return True


def _strides(lie: LoopMapping, nest: FusedLoopNest, number: Mapping[int, int]) -> Mapping[int, int]:
    """Steps of a dense tensor; those of joined axes are of the innermost."""
    found: dict[int, int] = {}
    step = 1
    for axis in reversed(lie):
        found.setdefault(number[axis], step)
        step *= nest.extents[axis]
    return found


def is_free(op: Op) -> bool:
    """Whether it is no line of a kernel: a number, or the same numbers for more elements."""
    return op.spec is constant or op.name in ("broadcast", "reshape", "stop_gradient")
