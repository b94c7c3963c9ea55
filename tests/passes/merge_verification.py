"""Comparison of merged programs with the per-device programs they replace."""

from shardir.errors import MergeError
from shardir.interpret.interpreter import run
from shardir.interpret.numeric_comparison import are_close, is_stable, tolerance_of
from shardir.interpret.random_arguments import random_arguments
from shardir.passes import Pipeline
from tests.passes.random_cases import Case
from tests.passes.whole_program.merge_comparison import merged, run_merged


def compare_merged(case: Case, pipeline: str) -> bool:
    """Check the merged program against the per-device program.

    Return whether there is a merged program whose results are comparable.
    """
    program = Pipeline.parse(case.pipeline)(case.module)
    try:
        one = merged(program, pipeline)
    except MergeError:
        return False
    arguments = random_arguments(program, whole=True)
    want, tolerance = run(program, arguments), tolerance_of(program)
    got = run_merged(program, one, arguments)
    if are_close(want, got, tolerance):
        return True
    assert not is_stable(case.module, arguments, run(case.module, arguments), tolerance)
    return False
