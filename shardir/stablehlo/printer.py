"""Printer of modules as StableHLO text, with Shardy's shardings or with collectives.

A module over global shapes has shardings; a per-device program has collectives between its
replicas. The text uses MLIR's generic form, which JAX's parser reads and XLA runs. Values keep
their names where MLIR allows them; with `locations` every operation states the name of its result
and the user's line.
"""

from collections.abc import Mapping
from functools import partial
from itertools import count
from types import MappingProxyType

from shardir.ir.module import Function, Module, spmd_mesh_of
from shardir.ir.sharding import Sharding
from shardir.stablehlo.debug_attributes import NO_DEBUG_ATTRIBUTES, DebugAttributes
from shardir.stablehlo.writing import (  # declare what each operation is
    manual_computation as manual_computation,
    rules as rules,
)
from shardir.stablehlo.writing.attributes import (
    format_integer,
    format_mesh,
    format_sharding,
    format_symbol,
    format_tensor,
)
from shardir.stablehlo.writing.functions import FunctionTable
from shardir.stablehlo.writing.writer import ExportError, MlirWriter


def show(
    module: Module,
    *,
    locations: bool = False,
    for_xla: bool = False,
    overwritten: Mapping[int, int] | None = None,
    debug: DebugAttributes = NO_DEBUG_ATTRIBUTES,
) -> str:
    """Return the module as MLIR text.

    With `for_xla`, the text has the same meaning in XLA: random bits are StableHLO operations
    instead of custom calls, and products state full precision. A per-device program has as many
    replicas as its mesh has devices: replica i is the device at position i. `overwritten`
    has for parameters of the first function the results that may overwrite them, and `debug`
    attributes without effect. Raises `ExportError` for operations that StableHLO cannot express.
    """
    meshes = {mesh.name: mesh for mesh in module.meshes}
    is_local = any(function.spmd is not None for function in module.functions[:1])
    mesh = spmd_mesh_of(module) if is_local else None
    declared_meshes = module.meshes if mesh is None else ()
    lines = [f"sdy.mesh @{each.name} = {format_mesh(each)}" for each in declared_meshes]
    table = FunctionTable.of(module)
    write = partial(
        MlirWriter,
        meshes,
        locations=locations,
        for_xla=for_xla,
        functions=table,
        channels=count(1),
        debug=debug,
    )
    for function in module.functions:
        if (function.spmd is None) != (mesh is None):
            raise ExportError(
                f"@{module.main.name} and @{function.name} are not both programs of each device"
            )
        results = overwritten if function is module.main and overwritten else {}
        lines += _function(function, write(mesh=mesh, replicas=mesh is not None), results)
    while table.unwritten:  # A function may call functions that are not known yet.
        called = table.unwritten.pop(0)
        writer = write(mesh=called.mesh, replicas=called.has_replicas)
        lines += _function(called.function, writer, {}, "private ")
    attrs = "" if mesh is None else f" attributes {{mhlo.num_replicas = {mesh.size} : i32}}"
    return f"module{attrs} {{\n" + "".join(f"  {line}\n" for line in lines) + "}\n"


def _function(
    function: Function, writer: MlirWriter, overwritten: Mapping[int, int], visibility: str = ""
) -> list[str]:
    def attributes(
        sharding: Sharding | None,
        result: int | None = None,
        debug: Mapping[str, str] = MappingProxyType({}),
    ) -> str:
        fields = [f"{key} = {value}" for key, value in debug.items()]
        if sharding is not None:
            text = format_sharding(sharding, writer.meshes[sharding.mesh])
            fields.append(f"sdy.sharding = #sdy.sharding{text}")
        if result is not None:
            fields.append(f"tf.aliasing_output = {format_integer(result, 32)}")
        return f" {{{', '.join(fields)}}}" if fields else ""

    params = [
        f"{writer.define(param)}: {format_tensor(param.type)}"
        f"{attributes(param.sharding, overwritten.get(number), writer.debug.params.get(param, {}))}"
        for number, param in enumerate(function.body.params)
    ]
    returns = writer.block(function.body)
    results = [
        format_tensor(value.type)
        + attributes(sharding, debug=writer.debug.results.get((function.name, number), {}))
        for number, (value, sharding) in enumerate(
            zip(returns, function.result_shardings, strict=True)
        )
    ]
    names = ", ".join(writer.name(value) for value in returns)
    types = ", ".join(format_tensor(value.type) for value in returns)
    returned = f"return {names} : {types}" if returns else "return"
    return [
        f"func.func {visibility}{format_symbol(function.name)}({', '.join(params)}) -> "
        f"({', '.join(results)}) {{",
        *(f"  {line}" for line in [*writer.lines, returned]),
        "}",
    ]
