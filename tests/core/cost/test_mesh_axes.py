"""The mesh axes of collectives."""

from shardir.cost.mesh_axes import crossed_axes
from shardir.ir.sharding import Axis

X, Y = Axis("x", 1, 8), Axis("y", 1, 8)


def test_a_permutation_crosses_the_old_and_the_new_axes() -> None:
    assert crossed_axes({"source": (X,), "target": (Y,)}) == (X, Y)
    assert crossed_axes({"source": (X,), "target": (X,)}) == (X,)
    assert crossed_axes({"axes": (Y,), "dim": 0}) == (Y,)
