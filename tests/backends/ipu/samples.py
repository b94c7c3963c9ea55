"""Samples of operations, to be emitted."""

from collections.abc import Iterator

from shardir.backends.emission import EmissionError
from shardir.frontend.emitting import emission_of
from tests.backends.ipu.running import Case
from tests.samples import SAMPLES


def cases() -> Iterator[tuple[str, Case]]:
    """The samples over element types that IPUs have."""
    for sample in SAMPLES:
        case = Case(emission_of(sample.module(), "ipu"), sample.module(), sample.arrays(), {})
        try:
            assert case.text
        except EmissionError:
            continue
        yield sample.id, case
