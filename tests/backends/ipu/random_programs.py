"""Random programs of the pass fuzzer that the IPU target can emit."""

from collections.abc import Iterator

from hypothesis import strategies as st

from shardir.backends.emission import EmissionError
from shardir.backends.ipu.target import program_text
from shardir.errors import PartitionError
from shardir.frontend.dispatch.stages.emission import make_emission
from shardir.ir.mesh import Mesh
from shardir.ir.module import Module
from shardir.passes.pipeline import Pipeline
from shardir.passes.simplify.inline import inline_regions
from tests.backends.drawn_examples import draw_examples
from tests.backends.ipu.host_model_execution import Case
from tests.passes.random_cases import PIPELINES, annotate, functions

MESH_SIZES = ((2,), (4,), (2, 2), (2, 4), (4, 2), (2, 2, 2))


@st.composite
def modules(draw: st.DrawFn) -> tuple[str, Module]:
    """Return a pipeline and a random program over a mesh of two to eight devices."""
    mesh = Mesh("m", tuple(zip("xyz", draw(st.sampled_from(MESH_SIZES)), strict=False)))
    function = inline_regions(draw(functions(mesh, 6)))
    return draw(st.sampled_from(PIPELINES)), Module((mesh,), (annotate(draw, function, mesh),))


def random_programs(number: int, count: int) -> Iterator[tuple[str, Case]]:
    """Yield those of `count` random programs that can be emitted, with random arguments."""
    for i, (pipeline, module) in enumerate(draw_examples(modules(), number, count)):
        try:
            emission = make_emission(module, "ipu", None, Pipeline.parse(pipeline), samples=True)
            program_text(emission, {})
        except (EmissionError, PartitionError):
            continue
        assert emission.samples is not None
        yield f"{number}-{i}", Case(emission, module, emission.samples.arguments, {})
