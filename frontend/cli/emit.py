"""`shardir emit` writes a program as source text that runs without shardir."""

from pathlib import Path
from typing import Annotated

import typer

from shardir.frontend.cli.array_files import load_arguments
from shardir.frontend.cli.files import CommandError
from shardir.frontend.cli.options import Arguments, FileOrFunction, MeshSizes, Seed, Specs
from shardir.frontend.cli.targets import load_target
from shardir.frontend.dispatch.stages.emission import (
    MAX_SELFTEST_SECONDS,
    make_emission,
    write_files,
)
from shardir.frontend.pytree import tree
from shardir.ops.opaque import check_no_opaque_operations
from shardir.passes.pipeline import DEFAULT_PIPELINE, Pipeline

EXAMPLES = """Examples:

  shardir emit mlp.ir --target gpu -o mlp/

  shardir emit mymodule:train_step --mesh data=4,model=2 --target gpu -o step/ --selftest

  shardir emit mlp.ir --target gpu -o mlp/ --passes default,overlap

  shardir opt mlp.ir | shardir emit - --target ipu -o mlp/"""


def emit(
    file: FileOrFunction,
    target: Annotated[str, typer.Option(help="the target: gpu or ipu")],
    out: Annotated[Path, typer.Option("--out", "-o", help="output folder")],
    mesh: MeshSizes = None,
    passes: Annotated[
        str | None,
        typer.Option(help="the pipeline, such as default,overlap (default: the default pipeline)"),
    ] = None,
    args: Arguments = None,
    specs: Specs = None,
    selftest: Annotated[
        bool,
        typer.Option("--selftest", help="add random arguments and the expected results"),
    ] = False,
    seed: Seed = 0,
    selftest_seconds: Annotated[
        float, typer.Option(help="time limit for computing the results of the self-test")
    ] = MAX_SELFTEST_SECONDS,
    inputs: Annotated[
        list[Path] | None,
        typer.Option("--input", help="a .npy file for each argument of the self-test, in order"),
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option(help="an option of the target, such as name=value")
    ] = None,
) -> None:
    """Write a program as source text for a target, and print the names of the files."""
    options = _parse_options(option or ())
    program = load_target(file, mesh, args, specs)
    check_no_opaque_operations(program.module)
    lowered = program.lowered
    if lowered is None:
        given = load_arguments(program.module, inputs) if inputs else None
        default = Pipeline.parse(DEFAULT_PIPELINE)
        emission = make_emission(
            program.module,
            target,
            pipeline=None if passes is None else Pipeline.extend(passes, default),
            samples=selftest or given is not None,
            seed=seed,
            arguments=given,
            seconds=selftest_seconds,
        )
    else:
        if passes is not None:
            lowered = lowered.with_passes(passes)
        count = lowered.in_tree.num_leaves
        args_, keywords = None, None
        if inputs:
            given = load_arguments(program.module, inputs, count)
            args_, keywords = tree.unflatten(lowered.in_tree, given)
        emission = lowered.emission(
            target,
            selftest=selftest,
            seed=seed,
            arguments=args_,
            keywords=keywords,
            selftest_seconds=selftest_seconds,
        )
    for path in write_files(emission, target, out, options):
        typer.echo(path)


def _parse_options(texts: list[str] | tuple[str, ...]) -> dict[str, str]:
    options = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (equals and name.isidentifier()):
            raise CommandError(f"{text!r} is not an option of a target; write it as name=value")
        options[name] = value
    return options
