"""Printer of modules as StableHLO text, with Shardy's shardings or with collectives.

A module over global shapes has shardings; a per-device program has collectives between its
replicas. The text uses MLIR's generic form, which JAX's parser reads and XLA runs. Values keep
their names where MLIR allows them; with `locations` every operation states the name of its result
and the user's line.
"""

from shardir.interpret.interpreter import spmd_mesh_of
from shardir.ir.module import Function, Module
from shardir.ir.sharding import Sharding
from shardir.stablehlo.writing import (  # declare what each operation is
    manual_computation as manual_computation,
    rules as rules,
)
from shardir.stablehlo.writing.attributes import format_mesh, format_sharding, format_tensor
from shardir.stablehlo.writing.writer import ExportError, MlirWriter


def show(module: Module, *, locations: bool = False, own_words: bool = False) -> str:
    """Return the module as MLIR text.

    Random bits are custom calls, or with `own_words` StableHLO operations. A per-device program has
    as many replicas as its mesh has devices: replica i is the device at position i. Raises
    `ExportError` for operations that StableHLO cannot express.
    """
    meshes = {mesh.name: mesh for mesh in module.meshes}
    mesh = spmd_mesh_of(module) if module.main.spmd is not None else None
    declared_meshes = module.meshes if mesh is None else ()
    lines = [f"sdy.mesh @{each.name} = {format_mesh(each)}" for each in declared_meshes]
    for function in module.functions:
        if (function.spmd is None) != (mesh is None):
            raise ExportError(
                f"@{module.main.name} and @{function.name} are not both programs of each device"
            )
        writer = MlirWriter(meshes, locations=locations, mesh=mesh, own_words=own_words)
        lines += _function(function, writer)
    attrs = "" if mesh is None else f" attributes {{mhlo.num_replicas = {mesh.size} : i32}}"
    return f"module{attrs} {{\n" + "".join(f"  {line}\n" for line in lines) + "}\n"


def _function(function: Function, writer: MlirWriter) -> list[str]:
    def attribute(sharding: Sharding | None) -> str:
        if sharding is None:
            return ""
        text = format_sharding(sharding, writer.meshes[sharding.mesh])
        return f" {{sdy.sharding = #sdy.sharding{text}}}"

    params = [
        f"{writer.define(param)}: {format_tensor(param.type)}{attribute(param.sharding)}"
        for param in function.body.params
    ]
    returns = writer.block(function.body)
    results = [
        f"{format_tensor(value.type)}{attribute(sharding)}"
        for value, sharding in zip(returns, function.result_shardings, strict=True)
    ]
    names = ", ".join(writer.name(value) for value in returns)
    types = ", ".join(format_tensor(value.type) for value in returns)
    returned = f"return {names} : {types}" if returns else "return"
    return [
        f"func.func @{function.name}({', '.join(params)}) -> ({', '.join(results)}) {{",
        *(f"  {line}" for line in [*writer.lines, returned]),
        "}",
    ]
