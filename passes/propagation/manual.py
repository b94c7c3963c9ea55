"""Manual computations: what flows in and out, and what of it has to do with the manual axes.

Inside of a manual computation values are local along its manual axes, so that nothing there may
be cut over them; outside, its operands and results are. Each operand flows into its parameter,
each returned value into its result, over an edge. Where the edge is looked at, the sides must
speak alike: for the operands that is how whole tensors are cut, so that the manual axes, which
stand in front in every dimension, are put before what the parameter's cell says, and taken away
from what it is given. The cell of a result tells of a whole tensor; from it they are taken away
before the edge is looked at, and put back.

Over the manual axes that cut no dimension of an operand or result, it is explicitly replicated.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import dropwhile, takewhile

from shardir.ir import Op, Value
from shardir.mesh import Mesh
from shardir.ops.manual import Cuts
from shardir.passes.propagation.draft import MANUAL, Draft
from shardir.passes.propagation.finish import sharding_axes
from shardir.passes.propagation.step import Shardings
from shardir.placement import Axes, Axis, Dim, Sharding


@dataclass(slots=True)
class Bridge:
    """How the sharding in the cell that an edge owns is seen from the edge.

    `whole` is a sharding of the whole tensor, as it is stated; `inwards` tells that the edge leads
    to a parameter.
    """

    shardings: Shardings
    whole: Sharding
    cuts: Cuts
    axes: Axes
    inwards: bool
    _seen: dict[int, int] = field(default_factory=dict)
    _kept: dict[int, int] = field(default_factory=dict)

    def seen(self, number: int) -> int:
        """The number of what the edge sees for what is in the cell."""
        found = self._seen.get(number)
        if found is None:
            found = self._seen[number] = self._through(number, self.inwards)
        return found

    def kept(self, number: int) -> int:
        """The number of what goes into the cell for what the edge decides."""
        found = self._kept.get(number)
        if found is None:
            found = self._kept[number] = self._through(number, not self.inwards)
        return found

    def _through(self, number: int, add: bool) -> int:
        sharding = self.shardings[number]
        assert sharding is not None, "something is said of every end of a manual computation"
        if add:
            seen = with_manual(sharding, self.whole, self.cuts)
            # Axes of dimensions whose priority has not come are out of use on both sides.
            out_of_use = dict.fromkeys((*self.whole.replicated, *sharding.replicated))
            mesh = self.shardings.meshes[sharding.mesh]
            seen = replace(seen, replicated=_in_order(tuple(out_of_use), mesh))
            return self.shardings.number(seen)
        return self.shardings.number(without_manual(sharding, self.axes))


def with_manual(free: Sharding, whole: Sharding, cuts: Cuts) -> Sharding:
    """The sharding of a whole tensor that is cut over the free axes as `free` says.

    What it is replicated and unreduced over are matters of the program, as in `whole`.
    """
    dims = tuple(
        Dim(manual + dim.axes, dim.open, dim.priority)
        for manual, dim in zip(cuts, free.dims, strict=True)
    )
    return replace(free, dims=dims, replicated=whole.replicated, unreduced=whole.unreduced,
                   reduction=whole.reduction)  # fmt: skip


def without_manual(sharding: Sharding, axes: Axes) -> Sharding:
    """What a sharding of a whole tensor says of its pieces along the manual `axes`."""
    names = {axis.name for axis in axes}

    def free(all_of: Axes) -> Axes:
        return tuple(axis for axis in all_of if axis.name not in names)

    dims = tuple(Dim(_behind(dim.axes, names), dim.open, dim.priority) for dim in sharding.dims)
    return replace(
        sharding,
        dims=dims,
        replicated=free(sharding.replicated),
        unreduced=free(sharding.unreduced),
    )


def _behind(axes: Axes, names: set[str]) -> Axes:
    """The axes behind the manual ones, up to the next of them."""
    behind = dropwhile(lambda axis: axis.name in names, axes)
    return tuple(takewhile(lambda axis: axis.name not in names, behind))


def ends(op: Op) -> list[tuple[Value, Cuts, bool]]:
    """The values that own an edge: parameters (`True`), then results, with the manual cuts."""
    (body,) = op.blocks
    into = zip(body.params, op.attrs["in_axes"], strict=True)
    out = zip(op.results, op.attrs["out_axes"], strict=True)
    return [*((v, cuts, True) for v, cuts in into), *((v, cuts, False) for v, cuts in out)]


def state_ends(
    draft: Draft, said: dict[Value, Sharding], shardings: Shardings, *, units: bool = False
) -> dict[Value, Bridge]:
    """The bridge of each parameter and result of a manual computation.

    They all say something, so that `said` grows: that a result is cut over the manual axes, and
    what else is open. Manual axes of size 1 count if `units`.
    """
    bridges: dict[Value, Bridge] = {}
    for op in draft.walk():
        if op.name != MANUAL:
            continue
        axes = op.attrs["axes"] if units else sharding_axes(op.attrs["axes"])
        owners = ends(op)
        mesh = _mesh(op, [said[v] for v, _, _ in owners if v in said], shardings.meshes)
        for value, stated, inwards in owners:
            cuts = stated if units else tuple(map(sharding_axes, stated))
            own = said.get(value) or Sharding.open(mesh.name, value.type.rank)
            free = own if inwards else without_manual(own, axes)
            used = {axis.name for dim in cuts for axis in dim}
            idle = tuple(axis for axis in axes if axis.name not in used)
            replicated = _in_order((*free.replicated, *idle), mesh)
            whole = replace(with_manual(free, free, cuts), replicated=replicated)
            said[value] = free if inwards else whole
            bridges[value] = Bridge(shardings, whole, cuts, axes, inwards)
    return bridges


def _mesh(op: Op, stated: list[Sharding], meshes: Mapping[str, Mesh]) -> Mesh:
    """The mesh of a manual computation: that of its shardings, else the first with its axes."""
    if stated:
        return meshes[stated[0].mesh]
    names = {axis.name for axis in op.attrs["axes"]}
    fits = (m for m in meshes.values() if not m.is_maximal and names <= m.sizes.keys())
    return next(fits)


def _in_order(axes: Axes, mesh: Mesh) -> Axes:
    names = list(mesh.sizes)

    def place(axis: Axis) -> tuple[int, int]:
        return names.index(axis.name), axis.pre

    return tuple(sorted(axes, key=place))
