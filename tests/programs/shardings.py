"""Random shardings as hypothesis strategies."""

from hypothesis import strategies as st

from shardir.frontend.random_programs.shardings import (
    MESHES as MESHES,
    choose_any_sharding,
    choose_sharding,
)
from shardir.ir.mesh import Mesh
from shardir.ir.sharding import Sharding
from shardir.ir.types import TensorType
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
    return choose_any_sharding(HypothesisChoices(draw), mesh, type)
