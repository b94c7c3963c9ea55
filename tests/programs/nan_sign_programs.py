"""Programs whose results depend on the sign of a NaN, which differs between processors."""

from shardir.ir.module import Module
from shardir.ir.types import FLOATS


def ranks_signs(module: Module) -> bool:
    """Whether floats that were computed are put in total order, which tells signs of NaN apart.

    An arccosine of 2 is a NaN with a sign or without: IEEE 754 leaves it open (section 6.3).
    """
    return any(
        op.name == "top_k" and x.type.dtype in FLOATS and x not in module.main.body.params
        for op in module.main.body.walk()
        for x in op.operands
    )
