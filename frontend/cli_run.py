"""`shardir run` executes a program on all devices of its mesh."""

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from shardir.backends.cpu import BACKEND
from shardir.frontend.cli_files import CommandError, read_module
from shardir.frontend.cli_options import File
from shardir.interpret import mesh_of
from shardir.ir import Module
from shardir.passes import Pipeline
from shardir.passes.pipeline import DEFAULT
from shardir.placement import Sharding
from shardir.sampling import parameter_types, random_arguments
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
        typer.Argument(help="one .npy file an argument; random numbers without any"),
    ] = None,
    passes: Annotated[str | None, typer.Option(help="passes to run, as text")] = None,
    seed: Annotated[int, typer.Option(help="of the random arguments")] = 0,
    save: Annotated[Path | None, typer.Option(help="write the results as .npy here")] = None,
) -> None:
    """Run a program on all devices of its mesh and print its results and how they are cut."""
    module = read_module(file)
    args = _load(module, inputs) if inputs else random_arguments(module, seed)
    if module.main.spmd is None and (module.meshes or passes is not None):
        module = Pipeline.parse(DEFAULT if passes is None else passes)(module)
        verify(module)
    printer = Printer(module.meshes)
    for i, (type, sharding, array) in enumerate(_run(module, args)):
        typer.echo(f"result {i}: {printer.typed(type, sharding)}")
        typer.echo(np.array2string(array, threshold=64, edgeitems=3))
        if save is not None:
            save.mkdir(parents=True, exist_ok=True)
            np.save(save / f"{i}.npy", array)


def _load(module: Module, inputs: list[Path]) -> list[Any]:
    types = parameter_types(module)
    names = [param.name for param in module.main.body.params]
    if len(inputs) != len(types):
        raise CommandError(
            f"@{module.main.name} takes {len(types)} arguments ({', '.join(names)}), "
            f"got {len(inputs)} files"
        )
    arrays = []
    for name, type, path in zip(names, types, inputs, strict=True):
        try:
            array = np.load(path, allow_pickle=False)
        except (OSError, ValueError) as error:
            raise CommandError(f"cannot read %{name} from {str(path)!r}: {error}") from None
        if array.shape != type.shape or array.dtype != type.numpy:
            raise CommandError(
                f"%{name} is {type}, but {str(path)!r} holds {array.dtype}{list(array.shape)}"
            )
        arrays.append(array)
    return arrays


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
