"""The command `shardir as-jax`, which runs a script of JAX with shardir."""

import os
import sys
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated

import typer

from shardir._imports.lazy_import import lazy_import
from shardir.errors import ShardirError, missing_file_reason
from shardir.frontend.cli.main import app as app
from shardir.frontend.cli.options import CommandError, with_load

if TYPE_CHECKING:
    from shardir.frontend.distributed import initialize
    from shardir.interop import in_place_of_jax
else:
    initialize = lazy_import("shardir.frontend.distributed.initialize")
    in_place_of_jax = lazy_import("shardir.interop.in_place_of_jax")


@app.command(
    name="as-jax",
    # Arguments after the script belong to the script, even if they look like options.
    context_settings={"allow_extra_args": True, "allow_interspersed_args": False},
    epilog="""Examples:

  shardir as-jax train.py

  shardir as-jax train.py --steps 100""",
)
@with_load
def as_jax(
    context: typer.Context,
    script: Annotated[
        Path, typer.Argument(help="a Python file; the script receives the arguments after it")
    ],
) -> None:
    """Run a script in which `import jax` imports shardir.

    The redirection also applies to modules in the script's folder, and to the installed libraries
    that import JAX.
    """
    if not os.path.isfile(script):
        raise CommandError(f"cannot run {str(script)!r}: {missing_file_reason(script)}")
    try:
        in_place_of_jax.run_script(script, context.args)
    except Exception as error:
        if isinstance(error, ShardirError) and not initialize.is_initialized():
            raise
        _print_traceback(error, str(script))
        raise SystemExit(1) from None


def _print_traceback(error: Exception, script: str) -> None:
    """Print the traceback from the script on, through `sys.excepthook`, which also stops peer
    processes.

    A script that cannot be compiled has no frame, and the error names its line.
    """
    entry: TracebackType | None = error.__traceback__
    while entry is not None and entry.tb_frame.f_code.co_filename != script:
        entry = entry.tb_next
    shown = entry if entry or isinstance(error, SyntaxError) else error.__traceback__
    sys.excepthook(type(error), error.with_traceback(shown), shown)
