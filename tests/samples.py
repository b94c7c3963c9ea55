"""Samples of every operation; see `tests.op_sample` for what a sample is.

A new operation needs a row in one of the tables; `tests/core/ops/test_samples.py` says which is
missing.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import settings

from shardir.ir.dtypes import RBG_KEYS
from tests.dtype_groups import INEXACT
from tests.op_sample import Sample
from tests.op_samples import (
    arrangement,
    computation,
    control,
    decompositions,
    lookup,
    pointwise,
)

ALL_SAMPLES: list[Sample] = [
    *pointwise.SAMPLES,
    *arrangement.SAMPLES,
    *computation.SAMPLES,
    *lookup.SAMPLES,
    *decompositions.SAMPLES,
    *control.SAMPLES,
]

SAMPLES = [
    sample
    for sample in ALL_SAMPLES
    if not any(
        value.type.dtype in RBG_KEYS for op in sample.function().body.ops for value in op.tensors
    )
]
"""Those without keys of four words, which StableHLO text and IPU programs refuse."""

SMOOTH = [
    sample
    for sample in SAMPLES
    if sample.smooth
    and any(x.dtype in INEXACT for x in sample.operands)
    and any(v.type.dtype in INEXACT for v in sample.function().body.returns)
]
"""Those that have derivatives to compare."""

LONG = settings().max_examples > 200
"""True if pytest runs with `--long`."""
SAMPLES_EACH = 3


def few_of_each(samples: Sequence[Sample], long: bool = LONG) -> list[Sample]:
    """Return at most `SAMPLES_EACH` samples of each operation, including the first and the last;
    all samples where `long` is true. Tests of shardings use it, because most samples of an
    operation differ only in dtypes.
    """
    if long:
        return list(samples)
    by_name: dict[str, list[Sample]] = {}
    for sample in samples:
        by_name.setdefault(sample.spec.name, []).append(sample)
    return [
        each[i * (len(each) - 1) // max(min(SAMPLES_EACH, len(each)) - 1, 1)]
        for each in by_name.values()
        for i in range(min(SAMPLES_EACH, len(each)))
    ]


def _operation_name(values: Mapping[str, Any]) -> str | None:
    sample: Sample | None = values.get("sample")
    return None if sample is None else sample.spec.name


some_of_each = pytest.mark.sample(10, kind=_operation_name)
"""The mark of tests with a parameter `sample`: `make test` runs at least one for each operation."""


def samples_of(*names: str) -> list[Sample]:
    """Return the samples of the operations with these names."""
    return [sample for sample in SAMPLES if sample.spec.name in names]
