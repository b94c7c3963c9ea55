"""`shardir profile` measures the time of each operation of a function."""

from contextlib import ExitStack
from pathlib import Path

import typer

from shardir.frontend.cli.targets import load_call
from shardir.frontend.profiling.profile import profile


def profile_function(
    function: str,
    mesh: str | None,
    args: str | None,
    specs: str | None,
    runs: int,
    trace: Path | None,
    seed: int,
) -> None:
    """Run a function on virtual CPU devices, and print the time of each operation."""
    with ExitStack() as stack:
        compiled, placed = load_call(stack, function, mesh, args, specs, seed)
        typer.echo(profile(compiled, *placed, runs=runs, trace=trace))
