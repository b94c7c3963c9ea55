"""Choose which functions of the vector math library are inlined into kernels."""

from shardir.backends.cpu.codegen.target import HostDescription
from shardir.backends.cpu.kernels.elementwise.loop_body import APPLY, LoopBody, LoopStep
from shardir.backends.cpu.kernels.math import library

MAX_INLINED_FUNCTIONS = 2
"""Functions that are inlined into a kernel; more would take long to compile."""
MAX_INLINED_BODY_STEPS = 24
"""The most steps of a body with inlined functions. In longer bodies the cost of a call is
negligible, and the wide vectors that inlining needs spill: long bodies compiled in a third less
time without inlining."""


def math_function_steps(body: LoopBody) -> list[LoopStep]:
    """Return the steps of a body that are functions of the vector math library."""
    return [step for step in body.steps if is_math_function(step)]


def is_math_function(step: LoopStep) -> bool:
    """Return whether a step is a function of the vector math library."""
    return step.kind == APPLY and library.symbol_of_op(step.op, "f32") is not None


def is_long(body: LoopBody) -> bool:
    """Return whether a body takes long to compile, so that it should occur once and be short."""
    return len(body.steps) > MAX_INLINED_BODY_STEPS


def is_inlined(body: LoopBody) -> bool:
    """Return whether the functions of a body are inlined into its kernel."""
    return len(math_function_steps(body)) <= MAX_INLINED_FUNCTIONS and not is_long(body)


def vectors_per_iteration(body: LoopBody, lanes: int, machine: HostDescription) -> int:
    """Return the vectors of one iteration: more for inlined functions, to hide their latency."""
    found = math_function_steps(body)
    dtypes = {"f64" if each.dtype == "f64" else "f32" for each in found}
    if len(dtypes) != 1 or not is_inlined(body):
        return 1
    (dtype,) = dtypes
    all_inlinable = all(library.is_inlinable(each.op, dtype, machine) for each in found)
    return (
        library.inlined_vector_count((each.op for each in found), dtype, machine)
        if all_inlinable and lanes == library.FUNCTION_LANES[dtype]
        else 1
    )
