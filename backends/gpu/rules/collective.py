"""Collectives: calls of methods of the program's `comm`, which the runtime files define.

Annotations change no element: their results are aliases of the operands.
"""

from shardir.backends.gpu.function_writer import FunctionWriter
from shardir.backends.gpu.lowering import lowers
from shardir.backends.gpu.torch_text import axes_text, shape_text
from shardir.ir.module import Op
from shardir.ir.operation import OPS
from shardir.ops.communication.async_collectives import START_OPS, kind_of

COLLECTIVE_ARGUMENTS = {
    "all-reduce": ("op", "axes"),
    "all-gather": ("dim", "axes"),
    "all-slice": ("dim", "axes"),
    "reduce-scatter": ("op", "dim", "axes"),
    "all-to-all": ("split", "concat", "axes"),
}
STARTED_COLLECTIVES = [
    START_OPS[OPS[name]].name for name in COLLECTIVE_ARGUMENTS if OPS[name] in START_OPS
]


@lowers(*COLLECTIVE_ARGUMENTS, *STARTED_COLLECTIVES)
def _collective(w: FunctionWriter, op: Op, x: str) -> str:
    kind = kind_of(op)
    attrs = {**op.attrs, "axes": axes_text(op.attrs["axes"], w.mesh)}
    if "op" in attrs:
        attrs["op"] = f'"{attrs["op"]}"'
    words = ", ".join(f"{name}={attrs[name]}" for name in COLLECTIVE_ARGUMENTS[kind])
    return f"comm.{kind.replace('-', '_')}({x}, {words})"


@lowers("collective-permute", "collective-permute-start")
def _permute(w: FunctionWriter, op: Op, x: str) -> str:
    call = "comm.collective_permute"
    axes = op.attrs.get("axes", ())
    if axes:
        pairs = ", ".join(shape_text(pair) for pair in op.attrs["pairs"])
        return f"{call}({x}, axes={axes_text(axes, w.mesh)}, pairs=[{pairs}])"
    source, target = (axes_text(op.attrs[name], w.mesh) for name in ("source", "target"))
    return f"{call}({x}, source={source}, target={target})"


@lowers("done", lazy=True)
def _done(w: FunctionWriter, op: Op) -> None:
    """Alias the result: a started collective is one complete call, which torch's
    streams overlap.
    """
    w.alias(op.result, op.operands[0])


@lowers("axis-index")
def _axis_index(w: FunctionWriter, op: Op) -> str:
    return f"comm.axis_index({axes_text(op.attrs['axes'], w.mesh)})"


ALIASING_OPERATIONS = (
    "sharding_constraint",
    "reshard",
    "propagation_barrier",
    "checkpoint-name",
    "pipeline-stage",
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
