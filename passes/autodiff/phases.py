"""Phases of a differentiated program: reasons (`why`) that mark the operations of a gradient."""

from shardir.ir.module import Op

GRADIENT_WHY = "gradient of"
"""Begin of the reason of operations that compute a gradient."""
RECOMPUTED_WHY = "recomputed for the gradient of"
"""Begin of the reason of operations that repeat a part of the forward computation."""


def is_recomputed(op: Op) -> bool:
    """Return whether an operation repeats a part of the forward computation."""
    return op.why.startswith(RECOMPUTED_WHY)


def is_in_gradient(op: Op) -> bool:
    """Return whether an operation computes a gradient, or is repeated for one."""
    return op.why.startswith((GRADIENT_WHY, RECOMPUTED_WHY))
