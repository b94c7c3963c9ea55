"""Annotations that change no element: the results are aliases of the operands."""

from shardir.backends.gpu.lowering import lowers
from shardir.backends.gpu.writer import Writer
from shardir.ir.module import Op

SAME = (
    "sharding_constraint",
    "reshard",
    "data_flow_edge",
    "propagation_barrier",
    "checkpoint-name",
    "stop_gradient",
    "vary",
)
NOTHING = ("sharding_group", "inspect-sharding")


@lowers(*SAME, "optimization_barrier", lazy=True)
def _same(w: Writer, op: Op) -> None:
    for result, operand in zip(op.results, op.operands, strict=True):
        w.same(result, operand)


@lowers(*NOTHING, lazy=True)
def _nothing(w: Writer, op: Op) -> None:
    """Write nothing: the operation has no result."""
