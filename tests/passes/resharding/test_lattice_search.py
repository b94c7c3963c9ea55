"""The search for the cheapest plan settles a limited number of states."""

from dataclasses import replace

import pytest

from shardir.ir.mesh import Mesh
from shardir.ir.sharding import Axis, Sharding
from shardir.ir.types import TensorType
from shardir.passes.resharding import lattice_search
from shardir.passes.resharding.lattice import ReshardProblem
from shardir.passes.resharding.lattice_search import find_cheapest_path, gather_and_slice_path

MESH = Mesh("m", (("x", 4), ("y", 4)))
X, Y = Axis.full("x", MESH), Axis.full("y", MESH)
TRANSPOSED = ReshardProblem(
    Sharding.of("m", [(X,), (Y,)]), Sharding.of("m", [(Y,), (X,)]), TensorType((8, 8), "f32")
)
SCATTERED = ReshardProblem(
    replace(Sharding.of("m", [()]), unreduced=(X,)),
    Sharding.of("m", [(X,)]),
    TensorType((1,), "f32"),
)
"""A reduce-scatter of a single element is padded, so that it sends more than an all-reduce."""


@pytest.mark.parametrize(("problem", "states"), [(TRANSPOSED, 0), (SCATTERED, 1)])
def test_plans_at_the_limit_reduce_gather_and_slice(
    problem: ReshardProblem, states: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search has no plan at the limit, or one that sends more."""
    monkeypatch.setattr(lattice_search, "MAX_SETTLED_STATES", states)
    assert find_cheapest_path(problem) == gather_and_slice_path(problem)


def test_plans_below_the_limit_send_less() -> None:
    assert [move.kind for move in find_cheapest_path(TRANSPOSED)] == ["collective-permute"]
    assert [move.kind for move in find_cheapest_path(SCATTERED)] == ["all-reduce", "all-slice"]
