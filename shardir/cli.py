"""The command `shardir`: that of the frontend, and what stands over it."""

import sys
from pathlib import Path
from types import TracebackType
from typing import Annotated

import typer

from shardir.errors import ShardirError
from shardir.frontend.cli import app, main as main
from shardir.frontend.cli_files import CommandError
from shardir.frontend.distributed import is_initialized


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
    from shardir.interop.in_place_of_jax import run_script

    if not script.is_file():
        raise CommandError(f"there is no file {script}")
    try:
        run_script(script, context.args)
    except Exception as error:
        if isinstance(error, ShardirError) and not is_initialized():
            raise
        _tell(error, str(script))
        raise SystemExit(1) from None


def _tell(error: Exception, script: str) -> None:
    """Tell an error as Python does, from the script on; it ends other processes as well."""
    place: TracebackType | None = error.__traceback__
    while place is not None and place.tb_frame.f_code.co_filename != script:
        place = place.tb_next
    shown = place or error.__traceback__
    sys.excepthook(type(error), error.with_traceback(shown), shown)
