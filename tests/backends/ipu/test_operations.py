"""Every operation that IPUs have computes on the host model what the reference computes."""

from collections.abc import Iterator

import pytest

from shardir.backends.emission import EmissionError
from shardir.backends.ipu.table import LOWERED, REFUSED
from shardir.frontend.emitting import emission_of
from shardir.opset import OPS
from tests.backends.ipu.running import Case, check
from tests.samples import SAMPLES

PARTS = 4
"""Samples are compiled together, in so many libraries."""


def cases() -> Iterator[tuple[str, Case]]:
    """The samples over element types that IPUs have."""
    for sample in SAMPLES:
        case = Case(emission_of(sample.module(), "ipu"), sample.module(), sample.arrays(), {})
        try:
            assert case.text
        except EmissionError:
            continue
        yield sample.id, case


@pytest.mark.parametrize("part", range(PARTS))
def test_samples_compute_what_the_reference_does(part: int) -> None:
    check({name: case for i, (name, case) in enumerate(cases()) if i % PARTS == part})


def test_every_operation_is_lowered_or_refused_with_a_reason() -> None:
    assert not set(LOWERED) & set(REFUSED)
    assert sorted({*LOWERED, *REFUSED}) == sorted(OPS)


def test_what_is_lowered_has_a_sample_that_runs() -> None:
    ran = {case.module.main.body.ops[0].name for _, case in cases()}
    sampled = {sample.spec.name for sample in SAMPLES}
    assert sampled & set(LOWERED) - ran == set()
