"""Which functions of vector mathematics kernels have as instructions."""

from shardir.backends.cpu.native.loops.body import APPLY, Body, Step
from shardir.backends.cpu.native.vector import library

INLINED = 2
"""Functions that a kernel has as instructions; more of them would take long to compile."""
LONGEST = 24
"""Steps of a body whose functions are written in. Beside more of them a call costs nothing that can
be seen, and the vectors of several registers that pay for a function written in do not stay in
registers: long bodies took a third less time to compile without."""


def functions(body: Body) -> list[Step]:
    """The steps of a body that are functions of vector mathematics."""
    return [
        step
        for step in body.steps
        if step.kind == APPLY and library.symbol(step.op, "f32") is not None
    ]


def is_long(body: Body) -> bool:
    """Whether a body is best there once, and as short as it can be: it takes long to compile."""
    return len(body.steps) > LONGEST


def is_inlined(body: Body) -> bool:
    """Whether the functions of a body are written into its kernel."""
    return len(functions(body)) <= INLINED and not is_long(body)


def abreast(body: Body, lanes: int) -> int:
    """Vectors of a round: more where functions are written in, whose steps wait for each other."""
    found = functions(body)
    dtypes = {"f64" if each.dtype == "f64" else "f32" for each in found}
    if len(dtypes) != 1 or not is_inlined(body):
        return 1
    (dtype,) = dtypes
    alone = all(library.is_written_in(each.op, dtype) for each in found)
    return library.abreast() if alone and lanes == library.LANES[dtype] else 1
