"""Per-device programs compute the results of the global program for any shardings.

Programs are random, over all operations, with random shardings on meshes of one, two and three
axes; the partitioned program runs on a simulated mesh. `pytest --long` tests thousands.
"""

from typing import Any

import numpy.typing as npt
import pytest
from hypothesis import given, settings, strategies as st

from shardir.ir.module import Module
from tests.op_sample import Sample
from tests.passes.sharded_evaluation import annotate_randomly, check_agreement, reject_the_simplest
from tests.programs.shardings import MESHES
from tests.programs.strategies import modules
from tests.samples import SAMPLES, some_of_each

pytestmark = some_of_each

Array = npt.NDArray[Any]
EXAMPLES = max(settings().max_examples // 50, 1)
"""How many ways each sample of an operation is cut."""


@given(st.data())
def test_programs_with_any_shardings(data: st.DataObject) -> None:
    module = annotate_randomly(data, data.draw(modules()), lambda _: True)
    check_agreement(module, "reshard,partition")


@given(st.data())
def test_programs_with_some_shardings(data: st.DataObject) -> None:
    some = st.integers(0, 3).map(lambda n: n == 0)
    module = annotate_randomly(data, data.draw(modules()), lambda _: data.draw(some))
    check_agreement(module, "propagate,reshard,partition,cse,dce")


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.id)
@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_every_operation_with_any_shardings(sample: Sample, data: st.DataObject) -> None:
    reject_the_simplest(data)
    mesh = data.draw(st.sampled_from(MESHES))
    module = annotate_randomly(data, Module((mesh,), (sample.function(),)), lambda _: True)
    check_agreement(module, "reshard,partition", sample.arrays())
