"""`shardir draw` draws the graph of a program."""

from pathlib import Path

import typer

from shardir.frontend.cli.options import CommandError
from shardir.frontend.cli.targets import load_target
from shardir.graph import to_dot, to_svg
from shardir.passes.pipeline import Pipeline


def draw_program(
    file: str,
    mesh: str | None,
    args: str | None,
    specs: str | None,
    passes: str | None,
    out: Path | None,
) -> None:
    """Draw the first function of a program into a file, or print it as DOT."""
    if out is not None and out.suffix not in (".dot", ".svg"):
        raise CommandError(f"cannot draw into {str(out)!r}; name a .dot or .svg file")
    program = load_target(file, mesh, args, specs)
    module = program.module
    if passes is not None:
        module = Pipeline.parse(program.pipeline(passes))(module)
    if out is None:
        typer.echo(to_dot(module), nl=False)
        return
    text = to_svg(module) if out.suffix == ".svg" else to_dot(module)
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"cannot write {str(out)!r}: {error.strerror}") from None
    typer.echo(out)
