"""Samples of operations, to be emitted."""

from collections.abc import Iterator

from shardir.backends.emission import EmissionError
from shardir.frontend.dispatch.emission import make_emission
from tests.backends.ipu.host_model_execution import Case
from tests.samples import SAMPLES


def cases() -> Iterator[tuple[str, Case]]:
    """The samples over element types that IPUs have."""
    for sample in SAMPLES:
        case = Case(make_emission(sample.module(), "ipu"), sample.module(), sample.arrays(), {})
        try:
            assert case.text
        except EmissionError:
            continue
        yield sample.id, case
