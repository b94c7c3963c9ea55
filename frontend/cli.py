"""The command line: `shardir opt` runs passes on IR text, `shardir run` runs a program, `shardir
explain` says why tensors are cut as they are, `shardir emit` writes programs for other machines."""

import typer

from shardir.errors import ShardirError
from shardir.frontend import cli_emit, cli_explain, cli_opt, cli_run

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    help="shardir: programs that know how they are spread over a mesh of devices.",
)
app.command(epilog=cli_opt.EXAMPLES)(cli_opt.opt)
app.command(epilog=cli_run.EXAMPLES)(cli_run.run)
app.command(epilog=cli_explain.EXAMPLES)(cli_explain.explain)
app.command(epilog=cli_emit.EXAMPLES)(cli_emit.emit)


def main() -> None:
    """Run the command; an error of ours is a message on stderr and exit status 1."""
    try:
        app(prog_name="shardir")
    except ShardirError as error:
        typer.echo(f"error: {error}", err=True)
        for note in getattr(error, "__notes__", ()):
            typer.echo(note, err=True)
        raise SystemExit(1) from None
