"""Whether merged programs compute what their devices do."""

from shardir.agreement import agree, rounding, steady
from shardir.errors import MergeError
from shardir.interpret import run
from shardir.passes import Pipeline
from shardir.sampling import random_arguments
from tests.passes.merged import merged, run_merged
from tests.passes.random_cases import Case


def judged(case: Case, pipeline: str) -> bool:
    """Whether the merged program gives the numbers of the devices' program, and could be told."""
    program = Pipeline.parse(case.pipeline)(case.module)
    try:
        one = merged(program, pipeline)
    except MergeError:
        return False
    arguments = random_arguments(program, whole=True)
    want, tolerance = run(program, arguments), rounding(program)
    got = run_merged(program, one, arguments)
    if agree(want, got, tolerance):
        return True
    assert not steady(case.module, arguments, run(case.module, arguments), tolerance)
    return False
