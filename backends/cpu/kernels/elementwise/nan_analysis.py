"""Determine which steps of a body are never NaN, from their operations.

The maximum or minimum of such steps takes fewer instructions, because no NaN has to be propagated.
"""

from shardir.backends.cpu.kernels.elementwise.loop_body import APPLY, CONSTANT, IOTA, LoopBody
from shardir.ir.types import FLOATS

_NAN_PRESERVING_OPS = frozenset(("neg", "abs", "maximum", "minimum", "convert", "stop_gradient"))
"""Operations that return no NaN for operands without NaN."""


def is_never_nan(body: LoopBody, k: int) -> bool:
    """Return whether step `k` is not NaN, whatever the array elements are."""
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
        return (is_never_nan(body, yes) or _excludes_nan(body, condition, yes, True)) and (
            is_never_nan(body, no) or _excludes_nan(body, condition, no, False)
        )
    is_real = all(body.steps[i].dtype not in ("c64", "c128") for i in step.operands)
    return (
        step.op in _NAN_PRESERVING_OPS
        and is_real
        and all(is_never_nan(body, i) for i in step.operands)
    )


def _excludes_nan(body: LoopBody, condition: int, x: int, holds: bool) -> bool:
    """Return whether a condition with the value `holds` implies that `x` is not NaN."""
    step = body.steps[condition]
    if step.kind != APPLY:
        return False
    if step.op == "not":
        return _excludes_nan(body, step.operands[0], x, not holds)
    if step.op == ("and" if holds else "or"):
        return any(_excludes_nan(body, i, x, holds) for i in step.operands)
    if step.op == ("eq" if holds else "ne"):
        return step.operands == (x, x)
    return holds and step.op == "is_finite" and step.operands == (x,)
