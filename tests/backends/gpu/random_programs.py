"""Random programs of the pass fuzzer that the GPU target can emit."""

from collections.abc import Iterator

from shardir.backends.emission import Emission, EmissionError
from shardir.backends.gpu.program_text import write_program
from shardir.errors import PartitionError
from shardir.frontend.dispatch.stages.emission import make_emission
from shardir.passes.pipeline import Pipeline
from tests.backends.drawn_examples import draw_examples
from tests.passes.random_cases import Case, cases

NONUNIQUE_OPERATIONS = ("eig", "eigh", "schur", "svd")
"""Operations whose results may have another order or direction in another library, or that GPU
programs do not have."""
MAX_DEVICES = 8
"""The largest number of devices of a program."""


def random_cases(number: int, count: int) -> list[Case]:
    """Return the small, deterministic programs among `count` random ones."""
    return [
        case
        for case in draw_examples(cases(), number, count)
        if all(mesh.size <= MAX_DEVICES for mesh in case.module.meshes)
        and not any(op.name in NONUNIQUE_OPERATIONS for op in case.module.main.body.walk())
    ]


def random_emissions(number: int, count: int) -> Iterator[tuple[str, Emission]]:
    """Yield the emissions of random programs, with self-tests."""
    for i, case in enumerate(random_cases(number, count)):
        try:
            pipeline = Pipeline.parse(case.pipeline)
            emission = make_emission(case.module, "gpu", None, pipeline, samples=True)
            write_program(emission)
        except (EmissionError, PartitionError):
            continue
        yield f"random_{number}_{i}", emission
