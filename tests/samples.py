"""Samples of every operation; see `tests.sampling` for what a sample is.

A new operation needs a row in one of the tables; `tests/core/ops/test_samples.py` says which is
missing.
"""

from shardir.types import INEXACT
from tests.op_samples import (
    arrangement,
    computation,
    control,
    decompositions,
    lookup,
    pointwise,
)
from tests.sampling import Sample

SAMPLES: list[Sample] = [
    *pointwise.SAMPLES,
    *arrangement.SAMPLES,
    *computation.SAMPLES,
    *lookup.SAMPLES,
    *decompositions.SAMPLES,
    *control.SAMPLES,
]

SMOOTH = [
    sample
    for sample in SAMPLES
    if sample.smooth
    and any(x.dtype in INEXACT for x in sample.operands)
    and any(v.type.dtype in INEXACT for v in sample.function().body.returns)
]
"""Those that have derivatives to compare."""


def samples_of(*names: str) -> list[Sample]:
    """The samples of the operations of these names."""
    return [sample for sample in SAMPLES if sample.spec.name in names]
