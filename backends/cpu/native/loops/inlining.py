"""Which functions of vector mathematics kernels have as instructions."""

from shardir.backends.cpu.native.loops.body import APPLY, Body, Step
from shardir.backends.cpu.native.vector import library

INLINED = 2
"""Functions that a kernel has as instructions; more of them would take long to compile."""


def functions(body: Body) -> list[Step]:
    """The steps of a body that are functions of vector mathematics."""
    return [
        step
        for step in body.steps
        if step.kind == APPLY and library.symbol(step.op, "f32") is not None
    ]


def is_inlined(body: Body) -> bool:
    """Whether the functions of a body are written into its kernel."""
    return len(functions(body)) <= INLINED


def abreast(body: Body, lanes: int) -> int:
    """Vectors of a round: more where functions are written in, whose steps wait for each other."""
    found = functions(body)
    dtypes = {"f64" if each.dtype == "f64" else "f32" for each in found}
    if len(found) > INLINED or len(dtypes) != 1:
        return 1
    (dtype,) = dtypes
    alone = all(library.is_written_in(each.op, dtype) for each in found)
    return library.abreast() if alone and lanes == library.LANES[dtype] else 1
