"""Boundaries of manual computations: conversion of shardings between the inside and the outside.

Inside of a manual computation values are local along its manual axes, so they cannot be sharded
over these; outside, its operands and results are. An edge connects each operand with its parameter,
and each returned value with its result. Both sides of an edge must be comparable when it is
visited: for operands the edge sees global tensors, so the manual axes, which come first in every
dimension, are added to the sharding of the parameter's cell, and removed from the sharding that the
cell receives. The cell of a result holds the sharding of the global tensor; the manual axes are
removed before the edge is visited, and added again afterwards.

An operand or result is explicitly replicated over the manual axes that shard none of its
dimensions.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import dropwhile, takewhile
from typing import TYPE_CHECKING

from shardir import ops
from shardir.ir.mesh import Mesh
from shardir.ir.module import Op, Value
from shardir.ir.sharding import Axes, Axis, DimSharding, Sharding, has_axis
from shardir.ops.control_flow.manual_computation import ManualDimAxes
from shardir.passes.propagation.finish import sharding_axes

if TYPE_CHECKING:
    from shardir.passes.propagation.draft import FunctionDraft
    from shardir.passes.propagation.step import ShardingTable


@dataclass(slots=True)
class BoundaryConversion:
    """Converts between the sharding of the cell that an edge owns and the sharding on which
    the edge operates.

    `global_sharding` is the stated sharding of the global tensor; `inwards` is true for edges to
    parameters.
    """

    shardings: "ShardingTable"
    global_sharding: Sharding
    dim_axes: ManualDimAxes
    axes: Axes
    inwards: bool
    _seen: dict[int, int] = field(default_factory=dict)
    _kept: dict[int, int] = field(default_factory=dict)

    def to_edge(self, number: int) -> int:
        """Return the number of the sharding that the edge sees for that in the cell."""
        result = self._seen.get(number)
        if result is None:
            result = self._seen[number] = self._through(number, self.inwards)
        return result

    def to_cell(self, number: int) -> int:
        """Return the number of the sharding for the cell after the edge has decided."""
        result = self._kept.get(number)
        if result is None:
            result = self._kept[number] = self._through(number, not self.inwards)
        return result

    def _through(self, number: int, add: bool) -> int:
        sharding = self.shardings[number]
        assert sharding is not None, (
            "every boundary value of a manual computation has a stated sharding"
        )
        if add:
            seen = add_manual_axes(sharding, self.global_sharding, self.dim_axes)
            # Axes of dimensions with a later priority are replicated on both sides.
            out_of_use = dict.fromkeys((*self.global_sharding.replicated, *sharding.replicated))
            mesh = self.shardings.meshes[sharding.mesh]
            seen = replace(seen, replicated=_in_order(tuple(out_of_use), mesh))
            return self.shardings.number(seen)
        return self.shardings.number(remove_manual_axes(sharding, self.axes))


def add_manual_axes(free: Sharding, outer: Sharding, dim_axes: ManualDimAxes) -> Sharding:
    """Return the sharding of a global tensor whose free axes are those of `free`.

    Replicated and unreduced axes are those of `outer`.
    """
    dims = tuple(
        DimSharding(manual + dim.axes, dim.open, dim.priority)
        for manual, dim in zip(dim_axes, free.dims, strict=True)
    )
    return replace(free, dims=dims, replicated=outer.replicated, unreduced=outer.unreduced,
                   reduction=outer.reduction)  # fmt: skip


def remove_manual_axes(sharding: Sharding, axes: Axes) -> Sharding:
    """Return the sharding of the local shards along the manual `axes` of a global tensor."""
    names = {axis.name for axis in axes}

    def free(all_of: Axes) -> Axes:
        return tuple(axis for axis in all_of if axis.name not in names)

    dims = tuple(
        DimSharding(_axes_after_manual(dim.axes, names), dim.open, dim.priority)
        for dim in sharding.dims
    )
    return replace(
        sharding,
        dims=dims,
        replicated=free(sharding.replicated),
        unreduced=free(sharding.unreduced),
    )


def _axes_after_manual(axes: Axes, names: set[str]) -> Axes:
    """Return the axes behind the manual ones, up to the next of them."""
    behind = dropwhile(lambda axis: axis.name in names, axes)
    return tuple(takewhile(lambda axis: axis.name not in names, behind))


def boundary_values(op: Op) -> list[tuple[Value, ManualDimAxes, bool]]:
    """Return the values that own an edge: parameters (`True`), then results, with their manual
    axes."""
    (body,) = op.blocks
    into = zip(body.params, op.attrs["in_axes"], strict=True)
    out = zip(op.results, op.attrs["out_axes"], strict=True)
    return [
        *((v, dim_axes, True) for v, dim_axes in into),
        *((v, dim_axes, False) for v, dim_axes in out),
    ]


def state_boundary_shardings(
    draft: "FunctionDraft",
    stated: dict[Value, Sharding],
    shardings: "ShardingTable",
    *,
    units: bool = False,
) -> dict[Value, BoundaryConversion]:
    """Return the bridge of each parameter and result of a manual computation.

    Each gets a sharding in `stated`: results are sharded over the manual axes, and other axes are
    open. Manual axes of size 1 count if `units`.
    """
    bridges: dict[Value, BoundaryConversion] = {}
    for op in draft.walk():
        if op.spec is not ops.manual_computation:
            continue
        axes = op.attrs["axes"] if units else sharding_axes(op.attrs["axes"])
        owners = boundary_values(op)
        mesh = _mesh(op, [stated[v] for v, _, _ in owners if v in stated], shardings.meshes)
        for value, all_axes, inwards in owners:
            dim_axes = all_axes if units else tuple(map(sharding_axes, all_axes))
            own = stated.get(value) or Sharding.open(mesh.name, value.type.rank)
            free = own if inwards else remove_manual_axes(own, axes)
            used = {axis.name for dim in dim_axes for axis in dim}
            idle = tuple(axis for axis in axes if axis.name not in used)
            replicated = _in_order((*free.replicated, *idle), mesh)
            outer = replace(add_manual_axes(free, free, dim_axes), replicated=replicated)
            stated[value] = free if inwards else outer
            bridges[value] = BoundaryConversion(shardings, outer, dim_axes, axes, inwards)
    return bridges


def _mesh(op: Op, stated: list[Sharding], meshes: Mapping[str, Mesh]) -> Mesh:
    """Return the mesh of a manual computation: that of its shardings, else the first with its
    axes, which other meshes may have with other sizes."""
    if stated:
        return meshes[stated[0].mesh]
    axes = op.attrs["axes"]
    return next(
        mesh
        for mesh in meshes.values()
        if not mesh.is_maximal and all(has_axis(axis, mesh) for axis in axes)
    )


def _in_order(axes: Axes, mesh: Mesh) -> Axes:
    names = list(mesh.sizes)

    def place(axis: Axis) -> tuple[int, int]:
        return names.index(axis.name), axis.pre

    return tuple(sorted(axes, key=place))
