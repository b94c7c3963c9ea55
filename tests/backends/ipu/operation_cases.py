"""Samples of all operations, for the IPU target."""

from collections.abc import Iterator

from shardir.backends.emission import EmissionError
from shardir.frontend.dispatch.stages.emission import make_emission
from tests.backends.ipu.host_model_execution import Case
from tests.samples import SAMPLES


def emittable_samples() -> Iterator[tuple[str, Case]]:
    """Yield the samples whose element types IPUs support."""
    for sample in SAMPLES:
        case = Case(make_emission(sample.module(), "ipu"), sample.module(), sample.arrays(), {})
        try:
            assert case.text
        except EmissionError:
            continue
        yield sample.id, case
