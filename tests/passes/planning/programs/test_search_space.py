"""The values inside of a program whose shardings a search decides."""

import pytest

from shardir.ir.mesh import Mesh
from shardir.passes.pipeline import DEFAULT_PIPELINE, Pipeline
from shardir.passes.planning.programs.planning_request import PlanningRequest
from shardir.passes.planning.programs.search_space import find_search_anchors
from shardir.text.parser import parse


@pytest.mark.parametrize(
    ("shape", "line", "pads", "anchors"),
    [
        ("8", "%y = neg(%x) : f32[8]", False, []),
        ("8", "%y = neg(%x) : f32[8]", True, []),
        ("6", "%y = neg(%x) : f32[6]", False, []),
        ("6", "%y = neg(%x) : f32[6]", True, ["y"]),
        ("6, 4", "%y = reshape(%x) : f32[24]", False, []),
    ],
)
def test_dimensions_that_no_axis_divides_have_anchors_with_padding(
    shape: str, line: str, pads: bool, anchors: list[str]
) -> None:
    """Arguments determine the dimensions of their groups otherwise."""
    result = line.rpartition(" : ")[2]
    module = parse(f"func @f(%x: f32[{shape}]) -> ({result}) {{\n  {line}\n  return %y\n}}\n")
    mesh, pipeline = Mesh("mesh", (("x", 4),)), Pipeline.parse(DEFAULT_PIPELINE)
    request = PlanningRequest(module, mesh, pipeline, pads_anchors=pads)
    assert [value.name for value in find_search_anchors(request)] == anchors
