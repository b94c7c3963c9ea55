"""Splits of mesh axes into two parts."""

from shardir.ir.mesh import Mesh
from shardir.passes.planning.programs.assignment import Assignment
from shardir.passes.planning.programs.axis_splits import list_splits, predict_splits
from shardir.passes.planning.programs.contraction_model import model_contractions
from shardir.text.parser import parse


def test_each_divisor_of_the_size_is_a_split() -> None:
    mesh = Mesh("m", (("x", 12), ("y", 3)))
    assert [split.mesh.axes for split in list_splits(mesh)] == [
        (("x_0", major), ("x_1", 12 // major), ("y", 3)) for major in (2, 3, 4, 6)
    ]


def test_an_axis_whose_parts_would_have_names_of_other_axes_is_not_split() -> None:
    mesh = Mesh("m", (("x", 4), ("x_1", 4)))
    assert [split.axis for split in list_splits(mesh)] == ["x_1"]


def test_assignments_have_both_parts_or_one() -> None:
    (split,) = list_splits(Mesh("m", (("x", 4), ("y", 3))))
    assignment = Assignment(((0, "x"), (1, "y")), ((0, 1, "x"),), ((2, "x"), (0, "y")))
    assert split.split_assignment(assignment, ("x_0", "x_1")) == Assignment(
        ((0, "x_0"), (0, "x_1"), (1, "y")),
        ((0, 1, "x_0"), (0, 1, "x_1")),
        ((2, "x_0"), (2, "x_1"), (0, "y")),
    )
    assert split.split_arguments(((("y", "x"), ()), None)) == ((("y", "x_0", "x_1"), ()), None)


def test_splits_that_are_predicted_to_be_better_come_first() -> None:
    """The axis divides no dimension of the product, and each of its parts divides one."""
    text = """
mesh @m = [x=6]
func @f(%a: f32[2, 8], %b: f32[8, 3]) -> (f32[2, 3]) {
  %c = dot(%a, %b, dims="ij,jk->ik") : f32[2, 3]
  return %c
}
"""
    body = parse(text).main.body
    groups = dict(zip(body.values(), ((0, 1), (1, 2), (0, 2)), strict=True))
    model = model_contractions(body, groups, {0: 0, 2: 2})
    mesh = Mesh("m", (("x", 6),))
    splits = predict_splits(Assignment(), model, mesh)
    assert [(split.parts, split.mesh.axes, plan.groups) for split, plan in splits] == [
        (("x_0", "x_1"), (("x_0", 2), ("x_1", 3)), ((0, "x_0"), (2, "x_1"))),
        (("x_0", "x_1"), (("x_0", 3), ("x_1", 2)), ((2, "x_0"), (0, "x_1"))),
    ]
    (best, _) = splits[0]
    parts = Assignment(((0, "x_0"), (2, "x_1")))
    assert predict_splits(parts, model, best.mesh) == []
