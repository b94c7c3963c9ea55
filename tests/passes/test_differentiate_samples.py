"""Every operation has the derivatives of its derivatives."""

import pytest

from shardir.types import INEXACT
from tests.derivatives import check_gradients
from tests.samples import SAMPLES
from tests.sampling import Sample

SMOOTH = [
    sample
    for sample in SAMPLES
    if sample.smooth
    and any(x.dtype in INEXACT for x in sample.operands)
    and any(v.type.dtype in INEXACT for v in sample.function().body.returns)
]


@pytest.mark.parametrize("sample", SMOOTH, ids=lambda sample: sample.id)
def test_second_derivatives(sample: Sample) -> None:
    wide = sample.widened()

    check_gradients(wide.function(), wide.arrays(), order=2, rel=1e-4)
