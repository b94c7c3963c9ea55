"""`shardir run` executes a program on all devices of its mesh."""

from pathlib import Path

import numpy as np
import typer

from shardir.backends.numpy import BACKEND
from shardir.frontend.cli.array_files import load_arguments, make_folder, save_array
from shardir.frontend.cli.targets import load_target
from shardir.interpret.machine_limits import check_runnable
from shardir.interpret.random_arguments import random_arguments
from shardir.interpret.shards import assemble_shards, slice_shard
from shardir.ir.module import Module, spmd_mesh_of
from shardir.ir.sharding import Sharding
from shardir.ir.types import NumpyArray, TensorType
from shardir.ops.opaque import check_no_opaque_operations
from shardir.passes import Pipeline
from shardir.passes.interface_check import check_interface
from shardir.passes.pipeline_parallelism.inline_pipelines import InlinePipelines
from shardir.text.printer import Printer
from shardir.verify.verifier import verify


def run_program(
    file: str,
    inputs: list[Path] | None,
    passes: str | None,
    seed: int,
    save: Path | None,
    mesh: str | None,
    args: str | None,
    specs: str | None,
) -> None:
    """Run a program on all devices of its mesh and print its results and their shardings."""
    program = load_target(file, mesh, args, specs)
    module = program.module
    check_no_opaque_operations(module)
    check_runnable(module)
    if save is not None:
        make_folder(save)
    given = random_arguments(module, seed)
    if inputs:
        count = None if program.lowered is None else program.lowered.in_tree.num_leaves
        loaded = load_arguments(module, inputs, count)
        given = [*loaded, *program.fill_arguments(given)[len(loaded) :]]
    else:
        given = program.fill_arguments(given)
    if passes is None:
        module = InlinePipelines()(module)
    if module.main.spmd is None and (module.meshes or passes is not None):
        module = Pipeline.parse(program.pipeline(passes))(module, check_interface)
        # Devices run a pipeline that the passes leave as the operations of all microbatches.
        module = InlinePipelines()(module)
        verify(module)
        check_runnable(module)
    printer = Printer(module.meshes)
    for i, (type, sharding, array) in enumerate(_run_on_devices(module, given)):
        typer.echo(f"result {i}: {printer.sharded_type(type, sharding)}")
        typer.echo(np.array2string(array, threshold=64, edgeitems=3))
        if save is not None:
            save_array(save / f"{i}.npy", array)


def _run_on_devices(
    module: Module, args: list[NumpyArray]
) -> list[tuple[TensorType, Sharding | None, NumpyArray]]:
    main = module.main
    program = BACKEND.compile(module)
    if main.spmd is None:
        results = program([[arg] for arg in args])
        values = main.body.returns
        return [(v.type, None, shards[0]) for v, shards in zip(values, results, strict=True)]
    mesh = spmd_mesh_of(module)
    shards = [
        [slice_shard(arg, outer.sharding, mesh, device) for device in range(mesh.size)]
        for arg, outer in zip(args, main.spmd.params, strict=True)
    ]
    return [
        (outer.type, outer.sharding, assemble_shards(parts, outer.type, outer.sharding, mesh))
        for outer, parts in zip(main.spmd.results, program(shards), strict=True)
    ]
