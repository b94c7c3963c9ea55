"""`shardir draw` draws the graph of a program."""

from pathlib import Path
from typing import Annotated

import typer

from shardir.frontend.cli.files import CommandError
from shardir.frontend.cli.options import Arguments, FileOrFunction, MeshSizes, Specs
from shardir.frontend.cli.targets import load_target
from shardir.passes.pipeline import DEFAULT_PIPELINE, Pipeline

EXAMPLES = """Examples:

  shardir draw mlp.ir > mlp.dot

  shardir draw mymodule:train_step --mesh data=4 --passes default -o step.svg"""


def draw(
    file: FileOrFunction,
    mesh: MeshSizes = None,
    args: Arguments = None,
    specs: Specs = None,
    passes: Annotated[
        str | None, typer.Option(help="the pipeline before the drawing (default: none)")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="a .dot or .svg file (default: print DOT)"),
    ] = None,
) -> None:
    """Draw the first function of a program: operations as boxes, values as edges.

    SVG requires Graphviz.
    """
    # Imported late for start-up time: networkx.
    from shardir.graph import to_dot, to_svg

    if out is not None and out.suffix not in (".dot", ".svg"):
        raise CommandError(f"cannot draw into {str(out)!r}; name a .dot or .svg file")
    module = load_target(file, mesh, args, specs).module
    if passes is not None:
        module = Pipeline.extend(passes, Pipeline.parse(DEFAULT_PIPELINE))(module)
    if out is None:
        typer.echo(to_dot(module), nl=False)
        return
    text = to_svg(module) if out.suffix == ".svg" else to_dot(module)
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"cannot write {str(out)!r}: {error.strerror}") from None
    typer.echo(out)
