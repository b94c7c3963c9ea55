"""The comparison of a pipeline with the program that it should make."""

from collections.abc import Sequence

import numpy as np

from shardir.interpret.interpreter import run
from shardir.interpret.machine_limits import check_runnable
from shardir.interpret.numeric_comparison import (
    are_close,
    describe_largest_difference,
    describe_type_difference,
    is_stable,
    relative_distance,
    tolerance_of,
)
from shardir.interpret.random_arguments import parameter_types, random_arguments
from shardir.ir.module import Module
from shardir.ir.types import NumpyArray
from shardir.ops.opaque import check_no_opaque_operations
from shardir.passes.pipeline import Pipeline
from shardir.text.parser import parse
from shardir.text.program_difference import unified_diff
from shardir.verify.verifier import verify


def parse_valid_program(text: str, file: str, line: int = 1) -> Module:
    """Return the verified module of a text that starts at a line of a file.

    Raises `ParseError` with the line of the file, or `VerifyError`.
    """
    module = parse("\n" * (line - 1) + text, file)
    verify(module)
    return module


def run_pipeline(pipeline: str, module: Module) -> Module:
    """Return the verified result of a pipeline."""
    result = Pipeline.parse(pipeline)(module)
    verify(result)
    return result


def text_difference(expected: Module, made: Module, from_name: str, to_name: str) -> str:
    """Return the unified diff of two programs, or an empty text if they print the same."""
    lines = unified_diff(str(expected).splitlines(), str(made).splitlines(), from_name, to_name)
    return "\n".join(lines)


def result_difference(
    first: Module, second: Module, arguments: Sequence[NumpyArray] | None = None
) -> str:
    """Return how the results of two programs differ, or an empty text.

    `arguments` are random by default.

    The tolerance is the one of `assert_equivalent`: the rounding error of the narrowest type in the
    first program, for arguments near which that program is stable.
    """
    for module in (first, second):
        check_no_opaque_operations(module)
        check_runnable(module)
    if parameter_types(first) != parameter_types(second):
        return "the programs have different parameters"
    if arguments is None:
        arguments = random_arguments(first)
    want, got = run(first, arguments), run(second, arguments)
    if wrong := describe_type_difference(want, got):
        return wrong
    allowed = tolerance_of(first)
    if are_close(want, got, allowed) or not is_stable(first, arguments, want, allowed):
        return ""
    gaps = [relative_distance(a, b, allowed) for a, b in zip(want, got, strict=True)]
    index = next(i for i, gap in enumerate(gaps) if gap > 1)
    distance = gaps[index] * allowed
    if np.isfinite(distance):
        return f"result {index} differs (by {distance:.3g}, and {allowed:.3g} is allowed)"
    return f"result {index} differs {describe_largest_difference(want[index], got[index])}"
