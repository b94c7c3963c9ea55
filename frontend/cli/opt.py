"""`shardir opt` runs passes on IR text."""

from pathlib import Path
from typing import Annotated

import typer

from shardir.frontend.cli.files import CommandError, ModuleFormat, parse_modules, read_text
from shardir.frontend.cli.options import (
    Arguments,
    FileOrFunction,
    MeshSizes,
    RuleTexts,
    Specs,
    parse_rules,
)
from shardir.frontend.cli.targets import check_file_options, is_function_name, load_target
from shardir.op_rules.custom_rules import rules
from shardir.passes import Pipeline
from shardir.passes.dump import Dump
from shardir.passes.numerics_check import NumericsCheck
from shardir.passes.pipeline import DEFAULT_PIPELINE, PassObserver, combine_observers
from shardir.text.printer import print_module
from shardir.verify.verifier import verify

EXAMPLES = """Examples:

  shardir opt mlp.ir --passes propagate

  shardir opt mlp.ir --passes "propagate,reshard,partition" --verify

  shardir opt mymodule:train_step --mesh data=4,model=2 --passes propagate

  shardir opt mlp.ir --dump-dir stages/

  shardir opt mlp.ir --passes propagate --to stablehlo

  shardir opt mlp.mlir --passes propagate

  shardir opt mlp.mlir --passes propagate --rule "my_op: i j, j k -> i k reduction={j}"

  cat mlp.ir | shardir opt - --passes cse,dce --locations"""


def opt(
    file: FileOrFunction = "-",
    passes: Annotated[
        str, typer.Option(help="the pipeline as text; `none` only verifies and prints")
    ] = DEFAULT_PIPELINE,
    verify_numbers: Annotated[
        bool,
        typer.Option(
            "--verify", help="run the program before and after each pass and compare the results"
        ),
    ] = False,
    dump_dir: Annotated[
        Path | None, typer.Option(help="write the program after each pass into this folder")
    ] = None,
    locations: Annotated[
        bool, typer.Option("--locations", help="print the source location of each operation")
    ] = False,
    from_: Annotated[
        ModuleFormat | None,
        typer.Option("--from", help="format of the file (default: detected)"),
    ] = None,
    to: Annotated[
        ModuleFormat, typer.Option(help="format of the printed result")
    ] = ModuleFormat.ir,
    rule: RuleTexts = None,
    mesh: MeshSizes = None,
    args: Arguments = None,
    specs: Specs = None,
) -> None:
    """Run passes on a module and print the result.

    The parts of a .mlir file between lines of // ----- are separate modules.
    """
    pipeline = Pipeline.parse("" if passes == "none" else passes)
    if is_function_name(file):
        if from_ is not None:
            raise CommandError(f"--from is for files, and {file!r} is a function")
        modules = [load_target(file, mesh, args, specs).module]
    else:
        check_file_options(file, mesh, args, specs)
        modules = parse_modules(*read_text(file), from_)
    printed = []
    for number, module in enumerate(modules):
        chosen: list[PassObserver] = []
        if dump_dir is not None:
            folder = dump_dir if len(modules) == 1 else dump_dir / str(number)
            chosen.append(Dump(folder, module))
        if verify_numbers:
            chosen.append(NumericsCheck())
        with rules(parse_rules(rule or ())):
            result = pipeline(module, combine_observers(*chosen))
        verify(result)
        if to is ModuleFormat.stablehlo:
            # Imported late for start-up time.
            from shardir.stablehlo.printer import show as show_stablehlo

            printed.append(show_stablehlo(result, locations=locations))
        else:
            printed.append(print_module(result, locations=locations))
    typer.echo("\n// -----\n\n".join(printed), nl=False)
