"""`shardir emit` writes a program as source text that runs without shardir."""

from pathlib import Path

import typer

from shardir.frontend.cli.array_files import load_arguments
from shardir.frontend.cli.options import (
    CommandError,
)
from shardir.frontend.cli.targets import load_target
from shardir.frontend.dispatch.stages.emission import (
    MAX_SELFTEST_SECONDS,
    make_emission,
    write_files,
)
from shardir.frontend.pytree import tree
from shardir.ops.opaque import check_no_opaque_operations
from shardir.passes.pipeline import Pipeline


def emit_program(
    file: str,
    target: str,
    out: Path,
    mesh: str | None,
    passes: str | None,
    args: str | None,
    specs: str | None,
    selftest: bool,
    seed: int,
    selftest_seconds: float | None,
    inputs: list[Path] | None,
    option: list[str] | None,
) -> None:
    """Write a program as source text for a target, and print the names of the files."""
    options = _parse_options(option or ())
    program = load_target(file, mesh, args, specs)
    check_no_opaque_operations(program.module)
    lowered = program.lowered_with(passes)
    if lowered is None:
        given = load_arguments(program.module, inputs) if inputs else None
        emission = make_emission(
            program.module,
            target,
            pipeline=None if passes is None else Pipeline.parse(passes),
            samples=selftest or given is not None,
            seed=seed,
            arguments=given,
            seconds=MAX_SELFTEST_SECONDS if selftest_seconds is None else selftest_seconds,
        )
    else:
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
