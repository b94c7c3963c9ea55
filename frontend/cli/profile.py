"""`shardir profile` measures the time of each operation of a function."""

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from shardir.frontend.cli.options import Arguments, MeshSizes, Seed, Specs
from shardir.frontend.cli.targets import load_call

EXAMPLES = """Examples:

  shardir profile mymodule:train_step --mesh data=4,model=2

  shardir profile mymodule:train_step --runs 20 --trace step.json"""


def profile(
    function: Annotated[str, typer.Argument(help="the function, as module:function")],
    mesh: MeshSizes = None,
    args: Arguments = None,
    specs: Specs = None,
    runs: Annotated[int, typer.Option(min=1, help="number of measured runs")] = 5,
    trace: Annotated[
        Path | None, typer.Option(help="file for the last run, which Perfetto shows")
    ] = None,
    seed: Seed = 0,
) -> None:
    """Run a function on virtual CPU devices, and print the time of each operation.

    Arguments of which example_args have a shape only are random.
    """
    # Imported late for start-up time.
    from shardir.frontend.profiling.profile import profile as measure

    with ExitStack() as stack:
        compiled, placed = load_call(stack, function, mesh, args, specs, seed)
        typer.echo(measure(compiled, *placed, runs=runs, trace=trace))
