"""Every operation, with random shardings, merged into one program over global arrays."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from shardir.errors import PartitionError
from shardir.interpret.interpreter import run
from shardir.interpret.numeric_comparison import are_close, tolerance_of
from shardir.ir.mesh import Mesh
from shardir.ir.module import Module
from shardir.passes import Pipeline
from tests.op_sample import Sample
from tests.passes.sharded_evaluation import annotate_randomly, reject_the_simplest
from tests.passes.whole_program.merge_comparison import merged, run_merged
from tests.samples import SAMPLES, few_of_each

pytestmark = pytest.mark.sample(5)

MESHES = (
    Mesh("m", (("x", 4), ("y", 2))),
    Mesh("m", (("x", 2), ("y", 2), ("z", 2))),
    Mesh("m", (("x", 3),)),
    Mesh("m", (("x", 3), ("y", 2))),
    Mesh("m", (("x", 8),)),
)
FOLDING = "merge-devices,cse,dce,fold-reductions,fold-views,cse,dce"
EXAMPLES = max(settings().max_examples // 100, 1)


@pytest.mark.parametrize("sample", few_of_each(SAMPLES), ids=lambda sample: sample.id)
@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_every_operation(sample: Sample, data: st.DataObject) -> None:
    reject_the_simplest(data)
    mesh = data.draw(st.sampled_from(MESHES))
    module = annotate_randomly(data, Module((mesh,), (sample.function(),)), lambda _: True)
    try:
        program = Pipeline.parse("reshard,partition,cse,dce")(module)
    except PartitionError:
        return
    arguments = [np.asarray(x) for x in sample.arrays()]
    want = run(program, arguments)
    got = run_merged(program, merged(program, FOLDING), arguments)
    assert are_close(want, got, tolerance_of(program))
