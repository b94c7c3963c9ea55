"""The entry point of the command line: it runs a command, and prints errors and warnings.

The folder `commands` declares the commands.
"""

import os
import sys
import warnings
from contextlib import suppress
from errno import EPIPE
from io import TextIOWrapper
from typing import Annotated, Any, NoReturn, TextIO

import typer
from typer.core import TyperGroup

from shardir.errors import HIDDEN_FRAMES_NOTE, ShardirError, bound_message
from shardir.frontend.cli.commands import analysis, planning, programs
from shardir.frontend.command_callers import command_callers

COMPLETION_VARIABLE = "_SHARDIR_COMPLETE"
"""The environment variable that Typer's completion scripts set."""


class _CommandGroup(TyperGroup):
    """The commands.

    Typer converts absent options with pydantic, whose import takes 0.15 s, unless the default of
    a flag is a `bool`.
    """

    def get_params(self, ctx: typer.Context) -> list[Any]:  # type: ignore[override]
        params: list[Any] = super().get_params(ctx)
        for param in params:
            if getattr(param, "is_flag", False) and param.default is None:
                param.default = False
        return params

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]
        """Run the command; remove the prefix of pydantic from messages about invalid values."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = error.message.removeprefix("Value error, ")
            raise


app = typer.Typer(
    cls=_CommandGroup,
    no_args_is_help=True,
    rich_markup_mode=None,
    help="shardir: compile programs whose arrays are sharded over a mesh of devices.",
)
for _command in (
    programs.opt,
    programs.run,
    analysis.explain,
    analysis.simulate,
    programs.emit,
    programs.draw,
    analysis.profile,
    programs.passes,
    programs.check_stories,
    planning.plan,
    planning.solve,
    planning.pipeline_schedule,
    analysis.calibrate,
):
    app.command(name=_command.name, epilog=_command.examples)(_command.run)


def _print_version(is_requested: bool) -> None:
    if is_requested:
        from importlib.metadata import version  # For start-up time.

        typer.echo(f"shardir {version('shardir')}")
        raise typer.Exit


@app.callback()
def _global_options(
    shows_version: Annotated[
        bool,
        typer.Option(
            "--version", help="print the version and exit", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command; an error is printed on stderr with exit status 1.

    Errors include output that cannot be written, and programs that are too large for the memory or
    for Python's stack. Characters that the output cannot encode are escaped.
    """
    command_callers.add(sys._getframe(1).f_code)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    if COMPLETION_VARIABLE in os.environ:
        # Typer wraps help texts to the terminal, and fish reads each line as another completion.
        os.environ["COLUMNS"] = "1000"
    try:
        with warnings.catch_warnings():
            # Python hides deprecations outside of scripts; a pipeline in an option has no script.
            warnings.filterwarnings("default", "the pass '", DeprecationWarning)
            warnings.showwarning = _show_warning
            app(prog_name="shardir")
    except ShardirError as error:
        _exit_with_error(f"error: {error}", *_notes(error))
    except OSError as error:
        if error.filename is not None:
            raise
        if error.errno != EPIPE:  # The reader of a pipe may stop early.
            _exit_with_error(f"error: cannot write the output: {error.strerror}", closing=True)
        _exit_with_error(closing=True)
    except MemoryError:
        _exit_with_error("error: there is not enough memory for this program")
    except RecursionError:
        _exit_with_error("error: this program is nested too deeply")


def _notes(error: ShardirError) -> list[str]:
    """Return the notes of an error, without the one on its traceback, which is not shown."""
    return [note for note in getattr(error, "__notes__", []) if note != HIDDEN_FRAMES_NOTE]


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    typer.echo(bound_message(f"warning: {message}"), err=True)


def _exit_with_error(*lines: str, closing: bool = False) -> NoReturn:
    """Exit with status 1 after printing these lines; `closing` discards unflushed standard
    output."""
    for line in lines:
        with suppress(OSError):
            typer.echo(bound_message(line), err=True)
    if closing:
        # Otherwise Python would fail to flush it again at exit.
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise SystemExit(1) from None
