"""The kernel table of the NumPy backend: how one device computes an operation.

Most operations run their reference semantics, which are NumPy already; the table holds faster
implementations of the others, which give the same values.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from shardir.ir.module import Op
from shardir.op_rules.rule_table import RuleTable

Kernel = Callable[..., Any]

kernels: RuleTable[Callable[[Op], Kernel]] = RuleTable(
    "cpu",
    "state the `reference` of define_op({0!r}, ...) of shardir.extend",
)
"""Maps an operation to a function that returns its kernel, from operand to result arrays."""


def kernel_of(op: Op) -> Kernel:
    """Return the function that computes `op` from the arrays of its operands."""
    if op.blocks:
        return _raise_for_blocks
    if op.spec in kernels:
        return kernels.of(op)(op)
    types = tuple(v.type for v in op.results)
    result = types[0] if len(types) == 1 else types
    if op.spec.exchange is not None:
        return partial(op.spec.exchange, result=result, **op.rule_arguments)
    reference = op.spec.reference
    if reference is None:
        kernels.of(op)  # raises the error that states how to add one
        raise AssertionError("unreachable")
    return partial(reference, result=result, **op.rule_arguments)


def _raise_for_blocks(*_: object) -> None:
    """Refuse to run an operation with blocks, which the executor handles itself."""
    raise AssertionError("control flow has no kernel")
