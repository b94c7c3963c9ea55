"""Choose which functions of the vector math library are inlined into kernels."""

from shardir.backends.cpu.native.loops.body import APPLY, Body, Step
from shardir.backends.cpu.native.vector import library

INLINED = 2
"""Functions that are inlined into a kernel; more would take long to compile."""
LONGEST = 24
"""The most steps of a body with inlined functions. In longer bodies the cost of a call is
negligible, and the wide vectors that inlining needs spill: long bodies compiled in a third less
time without inlining."""


def functions(body: Body) -> list[Step]:
    """Return the steps of a body that are functions of the vector math library."""
    return [
        step
        for step in body.steps
        if step.kind == APPLY and library.symbol(step.op, "f32") is not None
    ]


def is_long(body: Body) -> bool:
    """Return whether a body takes long to compile, so that it should occur once and be short."""
    return len(body.steps) > LONGEST


def is_inlined(body: Body) -> bool:
    """Return whether the functions of a body are inlined into its kernel."""
    return len(functions(body)) <= INLINED and not is_long(body)


def abreast(body: Body, lanes: int) -> int:
    """Return the vectors of one iteration: more for inlined functions, to hide their latency."""
    found = functions(body)
    dtypes = {"f64" if each.dtype == "f64" else "f32" for each in found}
    if len(dtypes) != 1 or not is_inlined(body):
        return 1
    (dtype,) = dtypes
    all_inlinable = all(library.is_written_in(each.op, dtype) for each in found)
    return library.abreast() if all_inlinable and lanes == library.LANES[dtype] else 1
