"""Random shardings as hypothesis strategies."""

from hypothesis import strategies as st

from shardir.frontend.random_programs.choices import Choices
from shardir.frontend.random_programs.shardings import (
    MESHES as MESHES,
    axis_parts,
    choose_sharding,
    merge_axes,
)
from shardir.ir.dtypes import KEYS
from shardir.ir.mesh import Mesh
from shardir.ir.sharding import Axes, DimSharding, Sharding
from shardir.ir.types import COMPLEX, TensorType
from tests.programs.hypothesis_choices import HypothesisChoices


@st.composite
def shardings(
    draw: st.DrawFn,
    mesh: Mesh,
    shape: tuple[int, ...],
    *,
    split: bool = True,
    uneven: bool = False,
    pending: bool = False,
) -> Sharding:
    """A closed sharding of a tensor of `shape`, as `choose_sharding` takes it."""
    return choose_sharding(
        HypothesisChoices(draw), mesh, shape, split=split, uneven=uneven, pending=pending
    )


@st.composite
def any_shardings(draw: st.DrawFn, mesh: Mesh, type: TensorType) -> Sharding:
    """Every kind of sharding: open and closed, sub-axes, priorities, pending sums."""
    return _choose_any_sharding(HypothesisChoices(draw), mesh, type)


def _choose_any_sharding(choices: Choices, mesh: Mesh, type: TensorType) -> Sharding:
    """Return a sharding of any kind: open and closed, with sub-axes, priorities, and unreduced."""
    atoms = [axis for name, _ in mesh.axes for axis in choices.choose(axis_parts(mesh, name))]
    lists: list[list[Axes]] = [[] for _ in range(type.rank + 3)]
    for axis in choices.permute(atoms):
        last = type.rank + (1 if type.dtype in KEYS else 2)
        lists[choices.integer(0, last)].append((axis,))
    flat = [merge_axes([axis for axes in part for axis in axes]) for part in lists]
    order = list(mesh.sizes)
    *sharded, replicated, _, unreduced = flat

    def in_order(axes: Axes) -> Axes:
        return merge_axes(sorted(axes, key=lambda axis: (order.index(axis.name), axis.pre)))

    dims = []
    for axes in sharded:
        is_open = choices.flag()
        has_priority = bool(axes or is_open) and choices.flag()
        priority = choices.integer(0, 3) if has_priority else None
        dims.append(DimSharding(axes, is_open, priority))
    # A partial product of complex numbers is undefined: times 1, infinite ones become NaN.
    reductions = ("add",) if type.dtype in COMPLEX else ("add", "max", "min", "mul")
    reduction = choices.choose(reductions) if unreduced else "add"
    return Sharding(mesh.name, tuple(dims), in_order(replicated), in_order(unreduced), reduction)
