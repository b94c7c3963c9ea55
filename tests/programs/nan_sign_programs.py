"""Programs whose results depend on the sign of a NaN, which differs between processors."""

from shardir.ir.module import Module
from tests.dtype_groups import FLOATS


def ranks_signs(module: Module) -> bool:
    """Return whether a program puts computed floats in total order, which depends on signs of NaN.

    An arccosine of 2 is a NaN with or without a sign: IEEE 754 leaves it open (section 6.3).
    """
    return any(
        op.name == "top_k" and x.type.dtype in FLOATS and x not in module.main.body.params
        for op in module.main.body.walk()
        for x in op.operands
    )
