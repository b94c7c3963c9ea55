"""Every operation has second derivatives."""

import pytest

from tests.derivatives import check_gradients
from tests.op_sample import Sample
from tests.samples import SMOOTH, some_of_each

pytestmark = some_of_each


@pytest.mark.parametrize("sample", SMOOTH, ids=lambda sample: sample.id)
def test_second_derivatives(sample: Sample) -> None:
    wide = sample.widened()

    check_gradients(wide.function(), wide.arrays(), order=2, rel=1e-4)
