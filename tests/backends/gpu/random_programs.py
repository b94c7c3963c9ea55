"""Random programs for GPUs: what the fuzzer of passes draws, less what cannot be emitted."""

from collections.abc import Iterator

from shardir.backends.emission import Emission, EmissionError
from shardir.backends.gpu.program_text import write_program
from shardir.errors import PartitionError
from shardir.frontend.dispatch.emission import make_emission
from shardir.passes.pipeline import Pipeline
from tests.backends.drawn_examples import drawn
from tests.passes.random_cases import Case, cases

UNDETERMINED = ("eig", "eigh", "svd")
"""What two libraries may answer in other orders and directions."""
MOST = 8
"""Devices that a program may have."""


def programs(number: int, count: int) -> list[Case]:
    """Those of so many random programs that are small, and have one answer."""
    return [
        case
        for case in drawn(cases(), number, count)
        if all(mesh.size <= MOST for mesh in case.module.meshes)
        and not any(op.name in UNDETERMINED for op in case.module.main.body.walk())
    ]


def emissions(number: int, count: int) -> Iterator[tuple[str, Emission]]:
    """Random programs as they are emitted, with their self-tests."""
    for i, case in enumerate(programs(number, count)):
        try:
            pipeline = Pipeline.parse(case.pipeline)
            emission = make_emission(case.module, "gpu", None, pipeline, samples=True)
            write_program(emission)
        except (EmissionError, PartitionError):
            continue
        yield f"random_{number}_{i}", emission
