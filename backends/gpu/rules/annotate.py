"""Annotations that change no element: the results are aliases of the operands."""

from shardir.backends.gpu.function_writer import FunctionWriter
from shardir.backends.gpu.lowering import lowers
from shardir.ir.module import Op

ALIASING_OPERATIONS = (
    "sharding_constraint",
    "reshard",
    "data_flow_edge",
    "propagation_barrier",
    "checkpoint-name",
    "stop_gradient",
    "vary",
)
OPERATIONS_WITHOUT_RESULT = ("sharding_group", "inspect-sharding")


@lowers(*ALIASING_OPERATIONS, "optimization_barrier", lazy=True)
def _alias(w: FunctionWriter, op: Op) -> None:
    for result, operand in zip(op.results, op.operands, strict=True):
        w.alias(result, operand)


@lowers(*OPERATIONS_WITHOUT_RESULT, lazy=True)
def _omit(w: FunctionWriter, op: Op) -> None:
    """Write nothing: the operation has no result."""
