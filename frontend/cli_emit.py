"""`shardir emit` writes a program as source text that runs without shardir."""

from pathlib import Path
from typing import Annotated

import typer

from shardir.frontend.cli_files import CommandError
from shardir.frontend.cli_functions import program_of
from shardir.frontend.cli_options import Arguments, FileOrFunction, MeshSizes, Specs
from shardir.frontend.emitting import emission_of, write

EXAMPLES = """Examples:

  shardir emit mlp.ir --target gpu -o mlp/

  shardir emit mymodule:train_step --mesh data=4,model=2 --target gpu -o step/ --selftest

  shardir opt mlp.ir | shardir emit - --target ipu -o mlp/"""


def emit(
    file: FileOrFunction,
    target: Annotated[str, typer.Option(help="what the program is for: gpu or ipu")],
    out: Annotated[Path, typer.Option("--out", "-o", help="the folder of the program's files")],
    mesh: MeshSizes = None,
    args: Arguments = None,
    specs: Specs = None,
    selftest: Annotated[
        bool,
        typer.Option("--selftest", help="add random arguments, and the results they must give"),
    ] = False,
    seed: Annotated[int, typer.Option(help="of the random arguments")] = 0,
    option: Annotated[
        list[str] | None, typer.Option(help="an option of the target, as in name=value")
    ] = None,
) -> None:
    """Write a program as source text for a target, and print the names of the files."""
    options = _options(option or ())
    program = program_of(file, mesh, args, specs)
    if program.lowered is not None:
        emission = program.lowered.emission(target, selftest=selftest, seed=seed)
    else:
        emission = emission_of(program.module, target, samples=selftest, seed=seed)
    for path in write(emission, target, out, options):
        typer.echo(path)


def _options(texts: list[str] | tuple[str, ...]) -> dict[str, str]:
    options = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (equals and name.isidentifier()):
            raise CommandError(f"{text!r} is no option of a target; write it as name=value")
        options[name] = value
    return options
