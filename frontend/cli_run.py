"""`shardir run` executes a program on all devices of its mesh."""

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from shardir.backends.cpu import BACKEND
from shardir.frontend.cli_arrays import load_arguments, make_folder, save_array
from shardir.frontend.cli_files import read_module
from shardir.frontend.cli_options import File, Seed
from shardir.interpret import mesh_of
from shardir.ir import Module
from shardir.machine_limits import check_runnable
from shardir.ops.opaque import refuse_unknown
from shardir.passes import Pipeline
from shardir.passes.pipeline import DEFAULT
from shardir.placement import Sharding
from shardir.sampling import random_arguments
from shardir.shards import cut, join
from shardir.text.printer import Printer
from shardir.types import TensorType
from shardir.verify import verify

EXAMPLES = """Examples:

  shardir run mlp.ir

  shardir run mlp.ir x.npy w1.npy b1.npy w2.npy b2.npy --save out/

  shardir run mlp.ir --seed 7 --passes "propagate,reshard,partition" """


def run(
    file: File,
    inputs: Annotated[
        list[Path] | None,
        typer.Argument(help="one .npy file per argument (default: random arguments)"),
    ] = None,
    passes: Annotated[str | None, typer.Option(help="the pipeline as text")] = None,
    seed: Seed = 0,
    save: Annotated[Path | None, typer.Option(help="folder for the results as .npy files")] = None,
) -> None:
    """Run a program on all devices of its mesh and print its results and their shardings."""
    module = read_module(file)
    refuse_unknown(module)
    check_runnable(module)
    if save is not None:
        make_folder(save)
    args = load_arguments(module, inputs) if inputs else random_arguments(module, seed)
    if module.main.spmd is None and (module.meshes or passes is not None):
        module = Pipeline.parse(DEFAULT if passes is None else passes)(module)
        verify(module)
        check_runnable(module)
    printer = Printer(module.meshes)
    for i, (type, sharding, array) in enumerate(_run(module, args)):
        typer.echo(f"result {i}: {printer.typed(type, sharding)}")
        typer.echo(np.array2string(array, threshold=64, edgeitems=3))
        if save is not None:
            save_array(save / f"{i}.npy", array)


def _run(module: Module, args: list[Any]) -> list[tuple[TensorType, Sharding | None, Any]]:
    main = module.main
    program = BACKEND.compile(module)
    if main.spmd is None:
        results = program([[arg] for arg in args])
        values = main.body.returns
        return [(v.type, None, shards[0]) for v, shards in zip(values, results, strict=True)]
    mesh = mesh_of(module)
    shards = [
        [cut(arg, outer.sharding, mesh, device) for device in range(mesh.size)]
        for arg, outer in zip(args, main.spmd.params, strict=True)
    ]
    return [
        (outer.type, outer.sharding, join(parts, outer.type, outer.sharding, mesh))
        for outer, parts in zip(main.spmd.results, program(shards), strict=True)
    ]
