"""The command line: `shardir opt` runs passes on IR text, `shardir run` runs a program, `shardir
explain` says why tensors are cut as they are, `shardir emit` writes programs for other machines."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from shardir.backends.cpu import BACKEND
from shardir.custom_rules import rules
from shardir.errors import ShardirError
from shardir.frontend.cli_emit import EXAMPLES, emit
from shardir.frontend.cli_files import (
    CommandError,
    Form,
    modules_of,
    read_module,
    read_text,
)
from shardir.frontend.cli_functions import program_of
from shardir.interpret import mesh_of
from shardir.ir import Module
from shardir.passes import Pipeline, Propagate
from shardir.passes.check import Check
from shardir.passes.dump import Dump
from shardir.passes.pipeline import DEFAULT, Watch, watches
from shardir.placement import Sharding
from shardir.sampling import parameter_types, random_arguments
from shardir.shards import cut, join
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

Stated = Annotated[
    list[str] | None,
    typer.Option("--rule", help="how cuts pass an operation: my_op: i j, j k -> i k reduction={j}"),
]

Passes = Annotated[str | None, typer.Option(help="passes to run, as text")]


@app.command(
    epilog="""Examples:

  shardir opt mlp.ir --passes propagate

  shardir opt mlp.ir --passes "propagate,reshard,partition" --verify

  shardir opt mlp.ir --dump-dir stages/

  shardir opt mlp.ir --passes propagate --to stablehlo

  shardir opt mlp.mlir --passes propagate

  shardir opt mlp.mlir --passes propagate --rule "my_op: i j, j k -> i k reduction={j}"

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
    from_: Annotated[
        Form | None,
        typer.Option("--from", help="what the file is; by default its name or beginning tells"),
    ] = None,
    to: Annotated[Form, typer.Option(help="what to print the result as")] = Form.ir,
    rule: Stated = None,
) -> None:
    """Run passes on a module and print the result.

    The parts of a .mlir file between lines of // ----- are modules of their own.
    """
    pipeline = Pipeline.parse("" if passes == "none" else passes)
    modules = modules_of(*read_text(file), from_)
    printed = []
    for number, module in enumerate(modules):
        chosen: list[Watch] = []
        if dump_dir is not None:
            folder = dump_dir if len(modules) == 1 else dump_dir / str(number)
            chosen.append(Dump(folder, module))
        if verify_numbers:
            chosen.append(Check())
        with rules(_stated(rule or ())):
            result = pipeline(module, watches(*chosen))
        verify(result)
        if to is Form.stablehlo:
            from shardir.stablehlo.printer import show as show_stablehlo

            printed.append(show_stablehlo(result, locations=locations))
        else:
            printed.append(show(result, locations=locations))
    typer.echo("\n// -----\n\n".join(printed), nl=False)


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


@app.command(
    epilog="""Examples:

  shardir explain mlp.ir

  shardir explain mlp.ir --value %h

  shardir explain mlp.ir --conflicts

  shardir explain mlp.ir --what-if "%w1: f32[128, 256@model]" --without %x

  shardir explain mlp.ir --order

  shardir explain mlp.ir --coverage

  shardir explain mymodule:train_step --mesh data=16,model=16"""
)
def explain(
    file: Annotated[
        str,
        typer.Argument(help="a file of IR text, - for standard input, or module:function"),
    ],
    mesh: Annotated[
        str | None, typer.Option(help="of a function: the mesh, as in data=16,model=16")
    ] = None,
    args: Annotated[
        str | None,
        typer.Option(help="of a function: module:name of its arguments; otherwise example_args"),
    ] = None,
    specs: Annotated[
        str | None,
        typer.Option(help="of a function: module:name of their specs; otherwise example_specs"),
    ] = None,
    value: Annotated[
        list[str] | None,
        typer.Option(help="where each axis of a value comes from, why others are not there"),
    ] = None,
    conflicts: Annotated[
        bool, typer.Option("--conflicts", help="wishes that met, who won, what the loser pays")
    ] = False,
    what_if: Annotated[
        list[str] | None,
        typer.Option(help="what changes with this annotation, as in %w: f32[128, 256@model]"),
    ] = None,
    without: Annotated[
        list[str] | None,
        typer.Option(help="what changes if nothing is said of %w, or of `result 0`"),
    ] = None,
    order: Annotated[
        bool, typer.Option("--order", help="values that another order of work cuts otherwise")
    ] = False,
    coverage: Annotated[
        bool,
        typer.Option("--coverage", help="operations, dimensions, annotations that were left out"),
    ] = False,
    communication: Annotated[
        bool, typer.Option("--communication", help="the collectives in tables, by kind, axes, line")
    ] = False,
    collective: Annotated[
        list[str] | None,
        typer.Option(help="what stands behind the collective that makes this value"),
    ] = None,
    function: Annotated[
        str | None, typer.Option(help="of the values; the first one otherwise")
    ] = None,
    passes: Annotated[
        str, typer.Option(help="the propagation, as in propagate{level=basic}")
    ] = "propagate",
    rule: Stated = None,
) -> None:
    """Say why tensors are cut as they are, and what would change that."""
    from shardir.passes import explain as explaining

    with rules(_stated(rule or ())):
        program = program_of(file, mesh, args, specs)
        module = program.module
        steps = Pipeline.parse(passes).passes
        if len(steps) != 1 or not isinstance(steps[0], Propagate):
            raise CommandError(
                f"only propagation is explained, not {passes!r}; write propagate{{...}}"
            )
        found: dict[str, Any] = {"propagate": steps[0], "places": program.places}
        reports: list[object] = [
            explaining.explain(module, each, function=function, **found) for each in value or ()
        ]
        if conflicts:
            reports.append(explaining.conflicts(module, **found))
        if what_if or without:
            reports.append(
                explaining.what_if(
                    module,
                    what_if or (),
                    without=without or (),
                    function=function,
                    propagate=steps[0],
                )
            )
        _, *rest = Pipeline.parse(DEFAULT).passes
        whole = str(Pipeline((replace(steps[0], leave_open=True), *rest)))
        if communication:
            parted = Pipeline.parse(whole)(module)
            reports.append(explaining.communication(parted, places=found["places"]))
        reports += [
            explaining.explain_collective(module, each, pipeline=whole, **found)
            for each in collective or ()
        ]
        if order:
            reports.append(explaining.order_sensitive(module, **found))
        if coverage:
            reports.append(explaining.coverage(module, **found))
        if not reports:
            reports.append(explaining.summarize(module, **found))
            if program.lowered is not None:
                parted = Pipeline.parse(whole)(module)
                reports.append(explaining.communication(parted, places=found["places"]))
        typer.echo("\n\n".join(map(str, reports)))


def _stated(texts: Iterable[str]) -> dict[str, str]:
    """Rules by the names of operations, which stand before a colon."""
    stated = {}
    for text in texts:
        name, colon, rule = text.partition(": ")
        if not colon:
            raise CommandError(f"{text!r} states no rule; write it as my_op: i j, j k -> i k")
        stated[name.strip()] = rule.strip()
    return stated


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


app.command(epilog=EXAMPLES)(emit)


def main() -> None:
    """Run the command; an error of ours is a message on stderr and exit status 1."""
    try:
        app(prog_name="shardir")
    except ShardirError as error:
        typer.echo(f"error: {error}", err=True)
        for note in getattr(error, "__notes__", ()):
            typer.echo(note, err=True)
        raise SystemExit(1) from None
