"""The command `shardir`: that of the frontend, and what stands over it."""

from pathlib import Path
from typing import Annotated

import typer

from shardir.frontend.cli import app, main as main


@app.command(
    name="as-jax",
    # What follows the script is its own, also what looks like an option.
    context_settings={"allow_extra_args": True, "allow_interspersed_args": False},
    epilog="""Examples:

  shardir as-jax train.py

  shardir as-jax train.py --steps 100""",
)
def as_jax(
    context: typer.Context,
    script: Annotated[Path, typer.Argument(help="a Python file; what follows is for it")],
) -> None:
    """Run a script whose `import jax` finds shardir.

    The modules beside it find shardir as well, and nobody else does.
    """
    from shardir.frontend.cli_files import CommandError
    from shardir.interop.in_place_of_jax import run_script

    if not script.is_file():
        raise CommandError(f"there is no file {script}")
    run_script(script, context.args)
