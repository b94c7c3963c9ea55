"""Writing of manual computations in Shardy's dialect."""

from collections.abc import Sequence
from dataclasses import replace

from shardir import ops as ops  # declares the operations
from shardir.ir.mesh import Mesh
from shardir.ir.module import Op, Value
from shardir.ir.operation import OPS
from shardir.ir.sharding import Axes, Sharding
from shardir.ir.types import TOKEN
from shardir.ops.control_flow.manual_computation import ManualDimAxes, add_manual_axes
from shardir.stablehlo.writing.attributes import format_sharding
from shardir.stablehlo.writing.writer import WRITERS, ExportError, MlirWriter


@WRITERS.rule(OPS["manual_computation"])
def _manual_computation(w: MlirWriter, op: Op) -> None:
    (body,) = op.blocks
    axes, mesh = op.attrs["axes"], _mesh(w, op)
    part = next((axis for axis in axes if not axis.is_full(mesh)), None)
    if part is not None:
        raise ExportError(
            f"a manual computation along {part}, a sub-axis, cannot be expressed in StableHLO"
        )
    ins = [
        _global_sharding(param, dim_axes, axes, mesh, inside=True)
        for param, dim_axes in zip(body.params, op.attrs["in_axes"], strict=True)
    ]
    outs = [
        _global_sharding(value, dim_axes, axes, mesh, inside=False)
        for value, dim_axes in zip(op.results, op.attrs["out_axes"], strict=True)
    ]
    names = ", ".join(f'"{axis.name}"' for axis in axes)
    attrs = {
        "in_shardings": _per_value(ins, mesh),
        "manual_axes": f"#sdy<manual_axes{{{names}}}>",
        "out_shardings": _per_value(outs, mesh),
    }
    outer, w.mesh = w.mesh, mesh
    region = w.region(
        body.params, lambda: [w.typed_name(value) for value in w.block(body)], end="sdy.return"
    )
    w.mesh = outer
    w.write_op(op, "sdy.manual_computation", attrs, regions=[region], annotate=False)


def _mesh(w: MlirWriter, op: Op) -> Mesh:
    """Return the mesh of the computation's shardings, else the first mesh with its axes."""
    for value in (*op.blocks[0].params, *op.results):
        if value.sharding is not None:
            return w.meshes[value.sharding.mesh]
    names = {axis.name for axis in op.attrs["axes"]}
    for mesh in w.meshes.values():
        if names <= set(mesh.sizes) and not mesh.is_maximal:
            return mesh
    raise ExportError("a manual computation without a mesh has no text")


def _global_sharding(
    value: Value, dim_axes: ManualDimAxes, axes: Axes, mesh: Mesh, *, inside: bool
) -> Sharding:
    """Return the sharding of the global tensor; manual axes that do not shard it are replicated.

    Without a stated sharding, the dimensions are open to the free axes. Tokens are not replicated.
    """
    sharding = value.sharding or Sharding.open(mesh.name, value.type.rank)
    if inside or value.sharding is None:
        sharding = add_manual_axes(sharding, dim_axes)
    if value.type.dtype == TOKEN:
        return sharding
    used = {axis.name for dim in sharding.dims for axis in dim.axes}
    idle = [axis for axis in axes if axis.name not in used and axis not in sharding.replicated]
    order = list(mesh.sizes)
    replicated = sorted((*sharding.replicated, *idle), key=lambda a: (order.index(a.name), a.pre))
    return replace(sharding, replicated=tuple(replicated))


def _per_value(shardings: Sequence[Sharding], mesh: Mesh) -> str:
    texts = ", ".join(format_sharding(sharding, mesh) for sharding in shardings)
    return f"#sdy.sharding_per_value<[{texts}]>"
