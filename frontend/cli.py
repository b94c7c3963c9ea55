"""The command line: `shardir opt` runs passes on IR text, `shardir run` runs a program."""

import sys
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from shardir.backends import get_backend
from shardir.errors import ShardirError
from shardir.interpret import cut, join, mesh_of
from shardir.ir import Module
from shardir.passes import Pipeline
from shardir.passes.check import Check
from shardir.passes.dump import Dump
from shardir.passes.pipeline import DEFAULT, Watch, watches
from shardir.placement import Sharding
from shardir.sampling import parameter_types, random_arguments
from shardir.text.parser import parse
from shardir.text.printer import Printer, show
from shardir.types import TensorType
from shardir.verify import verify

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    help="shardir: programs that know how they are spread over a mesh of devices.",
)

File = Annotated[str, typer.Argument(help="a file of IR text, or - for standard input")]
Passes = Annotated[str | None, typer.Option(help="passes to run, as text")]


@app.command(
    epilog="""Examples:

  shardir opt mlp.ir --passes propagate

  shardir opt mlp.ir --passes "propagate,reshard,partition" --verify

  shardir opt mlp.ir --dump-dir stages/

  cat mlp.ir | shardir opt - --passes cse,dce --locations"""
)
def opt(
    file: File = "-",
    passes: Annotated[
        str, typer.Option(help="the passes, as text; `none` only checks and prints")
    ] = DEFAULT,
    verify_numbers: Annotated[
        bool,
        typer.Option(
            "--verify", help="run the program before and after each pass and compare the numbers"
        ),
    ] = False,
    dump_dir: Annotated[
        Path | None, typer.Option(help="write the program after each pass into this folder")
    ] = None,
    locations: Annotated[
        bool, typer.Option("--locations", help="print where each operation came from")
    ] = False,
) -> None:
    """Run passes on a module and print the result."""
    module = _read(file)
    chosen: list[Watch] = []
    if dump_dir is not None:
        chosen.append(Dump(dump_dir, module))
    if verify_numbers:
        chosen.append(Check())
    pipeline = Pipeline.parse("" if passes == "none" else passes)
    result = pipeline(module, watches(*chosen))
    verify(result)
    typer.echo(show(result, locations=locations), nl=False)


@app.command(
    epilog="""Examples:

  shardir run mlp.ir

  shardir run mlp.ir x.npy w1.npy b1.npy w2.npy b2.npy --save out/

  shardir run mlp.ir --seed 7 --passes "propagate,reshard,partition" """
)
def run(
    file: File,
    inputs: Annotated[
        list[Path] | None,
        typer.Argument(help="one .npy file an argument; random numbers without any"),
    ] = None,
    passes: Passes = None,
    seed: Annotated[int, typer.Option(help="of the random arguments")] = 0,
    save: Annotated[Path | None, typer.Option(help="write the results as .npy here")] = None,
) -> None:
    """Run a program on all devices of its mesh and print its results and how they are cut."""
    module = _read(file)
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


def _read(file: str) -> Module:
    if file == "-":
        text, name = sys.stdin.read(), "<stdin>"
    else:
        try:
            text, name = Path(file).read_text(encoding="utf-8"), file
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
            raise CommandError(f"cannot read {file!r}: {reason}") from None
    module = parse(text, name)
    verify(module)
    if not module.functions:
        raise CommandError(f"{name} has no function to work on")
    return module


class CommandError(ShardirError):
    """A command that was given what it cannot use."""


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
    program = get_backend("cpu").compile(module)
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


def main() -> None:
    """Run the command; an error of ours is a message on stderr and exit status 1."""
    try:
        app(prog_name="shardir")
    except ShardirError as error:
        typer.echo(f"error: {error}", err=True)
        for note in getattr(error, "__notes__", ()):
            typer.echo(note, err=True)
        raise SystemExit(1) from None
