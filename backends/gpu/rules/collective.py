"""Collectives: calls of methods of the program's `comm`, which the runtime files define."""

from shardir.backends.gpu.lowering import lowers
from shardir.backends.gpu.spelling import axes_text, shaped
from shardir.backends.gpu.writer import Writer
from shardir.ir.module import Op
from shardir.ops.communication.async_collectives import START_SUFFIX, kind_of

CALLS = {
    "all-reduce": ("op", "axes"),
    "all-gather": ("dim", "axes"),
    "all-slice": ("dim", "axes"),
    "reduce-scatter": ("op", "dim", "axes"),
    "all-to-all": ("split", "concat", "axes"),
}
STARTED = [f"{name}{START_SUFFIX}" for name in CALLS if name != "all-slice"]


@lowers(*CALLS, *STARTED)
def _exchange(w: Writer, op: Op, x: str) -> str:
    kind = kind_of(op)
    attrs = {**op.attrs, "axes": axes_text(op.attrs["axes"], w.mesh)}
    if "op" in attrs:
        attrs["op"] = f'"{attrs["op"]}"'
    words = ", ".join(f"{name}={attrs[name]}" for name in CALLS[kind])
    return f"comm.{kind.replace('-', '_')}({x}, {words})"


@lowers("collective-permute", "collective-permute-start")
def _permute(w: Writer, op: Op, x: str) -> str:
    call = "comm.collective_permute"
    axes = op.attrs.get("axes", ())
    if axes:
        pairs = ", ".join(shaped(pair) for pair in op.attrs["pairs"])
        return f"{call}({x}, axes={axes_text(axes, w.mesh)}, pairs=[{pairs}])"
    source, target = (axes_text(op.attrs[name], w.mesh) for name in ("source", "target"))
    return f"{call}({x}, source={source}, target={target})"


@lowers("done", lazy=True)
def _done(w: Writer, op: Op) -> None:
    """Alias the result: a started collective is one complete call, which torch's
    streams overlap.
    """
    w.same(op.result, op.operands[0])


@lowers("axis-index")
def _axis_index(w: Writer, op: Op) -> str:
    return f"comm.axis_index({axes_text(op.attrs['axes'], w.mesh)})"
