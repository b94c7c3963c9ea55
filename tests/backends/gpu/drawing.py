"""Random programs for GPUs: what the fuzzer of passes draws, less what cannot be emitted."""

from collections.abc import Iterator

from hypothesis import HealthCheck, Phase, given, seed, settings

from shardir.backends.emission import Emission, EmissionError
from shardir.backends.gpu.program import write_program
from shardir.errors import PartitionError
from shardir.frontend.emitting import emission_of
from shardir.passes.pipeline import Pipeline
from tests.passes.random_cases import Case, cases

UNDETERMINED = ("eig", "eigh", "svd")
"""What two libraries may answer in other orders and directions."""
MOST = 8
"""Devices that a program may have."""


def drawn(number: int, count: int) -> list[Case]:
    """Random programs, the same for the same number."""
    found: list[Case] = []

    @seed(number)
    @settings(
        max_examples=count,
        database=None,
        derandomize=False,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(cases())
    def collect(case: Case) -> None:
        ops = case.module.main.body.walk()
        small = all(mesh.size <= MOST for mesh in case.module.meshes)
        if small and not any(op.name in UNDETERMINED for op in ops):
            found.append(case)

    collect()
    return found


def emissions(number: int, count: int) -> Iterator[tuple[str, Emission]]:
    """Random programs as they are emitted, with their self-tests."""
    for i, case in enumerate(drawn(number, count)):
        try:
            pipeline = Pipeline.parse(case.pipeline)
            emission = emission_of(case.module, "gpu", None, pipeline, samples=True)
            write_program(emission)
        except (EmissionError, PartitionError):
            continue
        yield f"random_{number}_{i}", emission
