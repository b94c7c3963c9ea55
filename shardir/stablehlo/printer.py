"""Modules as StableHLO text with Shardy's shardings.

Any module over global shapes can be printed; the text is what JAX's own parser reads, in MLIR's
generic form. Values keep their names where MLIR allows them, and with `locations` every
operation tells the name of its result and the user's line.
"""

from shardir.ir import Function, Module
from shardir.placement import Sharding
from shardir.stablehlo import manual as manual, rules as rules  # declare what each operation is
from shardir.stablehlo.attributes import mesh_text, sharding_text, tensor
from shardir.stablehlo.writer import ExportError, Writer


def show(module: Module, *, locations: bool = False) -> str:
    """The module as MLIR text; raises `ExportError` for a program of one device of many."""
    meshes = {mesh.name: mesh for mesh in module.meshes}
    lines = [f"sdy.mesh @{mesh.name} = {mesh_text(mesh)}" for mesh in module.meshes]
    for function in module.functions:
        lines += _function(function, Writer(meshes, locations=locations))
    return "module {\n" + "".join(f"  {line}\n" for line in lines) + "}\n"


def _function(function: Function, writer: Writer) -> list[str]:
    if function.spmd is not None:
        raise ExportError(
            f"@{function.name} is a program for each device, whose shapes are local; "
            "print it before 'partition'"
        )

    def attribute(sharding: Sharding | None) -> str:
        if sharding is None:
            return ""
        text = sharding_text(sharding, writer.meshes[sharding.mesh])
        return f" {{sdy.sharding = #sdy.sharding{text}}}"

    params = [
        f"{writer.define(param)}: {tensor(param.type)}{attribute(param.sharding)}"
        for param in function.body.params
    ]
    returns = writer.block(function.body)
    results = [
        f"{tensor(value.type)}{attribute(sharding)}"
        for value, sharding in zip(returns, function.results, strict=True)
    ]
    names = ", ".join(writer.name(value) for value in returns)
    types = ", ".join(tensor(value.type) for value in returns)
    returned = f"return {names} : {types}" if returns else "return"
    return [
        f"func.func @{function.name}({', '.join(params)}) -> ({', '.join(results)}) {{",
        *(f"  {line}" for line in [*writer.lines, returned]),
        "}",
    ]
