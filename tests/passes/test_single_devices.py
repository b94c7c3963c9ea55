"""Values on single devices of a program's mesh."""

import numpy as np
import pytest

from shardir.errors import PartitionError
from shardir.interpret.interpreter import run
from shardir.passes.pipeline import DEFAULT_PIPELINE, SHARDY_PIPELINE, Pipeline
from shardir.text.parser import parse

PROGRAM = """\
mesh @m = [x=2]
mesh @one = [] devices=[1]

func @main(%a: f32[4@x]) -> (f32[4@x], f32[4] on @one) {
  %0 = sin(%a) : f32[4@-] on @one
  %1 = add(%0, %a) : f32[4]
  %2 = neg(%0) : f32[4@-] on @one
  return %1, %2
}
"""


@pytest.mark.parametrize("pipeline", [DEFAULT_PIPELINE, SHARDY_PIPELINE])
def test_all_devices_compute_values_on_a_single_device(pipeline: str) -> None:
    a = np.arange(4, dtype=np.float32)
    both, negated = run(Pipeline.parse(pipeline)(parse(PROGRAM)), [a])
    np.testing.assert_allclose(both, np.sin(a) + a, rtol=1e-6)
    np.testing.assert_allclose(negated, -np.sin(a), rtol=1e-6)


@pytest.mark.parametrize(
    "program",
    [
        PROGRAM.replace("devices=[1]", "devices=[2]"),
        PROGRAM.replace(
            "sin(%a)", 'opaque(%a, operation="d.op", head="", attributes="", types="")'
        ),
    ],
    ids=["a device outside of the mesh", "an effect"],
)
@pytest.mark.parametrize("pipeline", [DEFAULT_PIPELINE, SHARDY_PIPELINE])
def test_programs_that_cannot_be_replicated_are_refused(program: str, pipeline: str) -> None:
    with pytest.raises(PartitionError) as error:
        Pipeline.parse(pipeline)(parse(program))
    assert str(error.value) == (
        "@main has values on the meshes @m and @one; a program runs on one mesh"
    )
