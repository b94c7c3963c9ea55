"""Which steps of a body are never NaN, as their operations tell.

The extremes of such steps take fewer instructions: nothing has to keep NaN from being lost.
"""

from shardir.backends.cpu.native.loops.body import APPLY, CONSTANT, IOTA, Body
from shardir.types import FLOATS

_KEEPING = frozenset(("neg", "abs", "maximum", "minimum", "convert", "stop_gradient"))
"""What makes no NaN of operands that are none."""


def never_nan(body: Body, k: int) -> bool:
    """Whether step `k` is a number whatever the arrays have."""
    step = body.steps[k]
    if step.dtype not in FLOATS or step.kind == IOTA:
        return True
    if step.kind == CONSTANT:
        value = dict(step.attrs)["value"]
        return bool(value == value)
    if step.kind != APPLY:
        return False
    if step.op == "select":
        condition, yes, no = step.operands
        return (never_nan(body, yes) or _tells(body, condition, yes, True)) and (
            never_nan(body, no) or _tells(body, condition, no, False)
        )
    real = all(body.steps[i].dtype not in ("c64", "c128") for i in step.operands)
    return step.op in _KEEPING and real and all(never_nan(body, i) for i in step.operands)


def _tells(body: Body, condition: int, x: int, holds: bool) -> bool:
    """Whether a condition that holds (or does not) says that `x` is not NaN."""
    step = body.steps[condition]
    if step.kind != APPLY:
        return False
    if step.op == "not":
        return _tells(body, step.operands[0], x, not holds)
    if step.op == ("and" if holds else "or"):
        return any(_tells(body, i, x, holds) for i in step.operands)
    if step.op == ("eq" if holds else "ne"):
        return step.operands == (x, x)
    return holds and step.op == "is_finite" and step.operands == (x,)
