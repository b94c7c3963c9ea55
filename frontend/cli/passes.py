"""`shardir passes` lists the passes that a pipeline can name, with their options."""

from collections.abc import Iterator
from dataclasses import fields
from inspect import getdoc

import typer

from shardir.errors import suggest_name
from shardir.frontend.cli.options import CommandError
from shardir.passes import PASSES
from shardir.passes.pass_aliases import current_name
from shardir.passes.pipeline import (
    DEFAULT_PIPELINE,
    SHARDY_PIPELINE,
    Pass,
    format_option,
    option_types,
)
from shardir.plugins.entry_points import OWN_ORIGIN


def list_passes(name: str | None) -> None:
    """Print the passes and their options, or describe one pass."""
    if name is None:
        for each in PASSES.names():
            typer.echo(f"{each}: {_summary(PASSES[each])}{_origin(each)}")
            for option in _options(PASSES[each]):
                typer.echo(f"    {option}")
        typer.echo(f"\ndefault pipeline: {DEFAULT_PIPELINE}")
        typer.echo(f"pipeline with the decisions of OpenXLA Shardy: {SHARDY_PIPELINE}")
        return
    chosen = current_name(name)
    kind = PASSES.find(chosen)
    if kind is None:
        hint = suggest_name(name, PASSES.names()) or (
            "`shardir passes` lists all, and --load mypass.py loads the passes of a file"
        )
        raise CommandError(f"no pass is called {name!r}; {hint}")
    typer.echo(f"{chosen}: {getdoc(kind)}{_origin(chosen)}")
    if options := list(_options(kind)):
        typer.echo("\noptions")
        for option in options:
            typer.echo(f"    {option}")


def _origin(name: str) -> str:
    """Return the origin of a pass that is not one of shardir, in brackets."""
    origin = PASSES.origin(name)
    return "" if origin == OWN_ORIGIN else f" [{origin}]"


def _summary(kind: type[Pass]) -> str:
    """Return the first paragraph of the docstring of a pass as one line."""
    return " ".join((getdoc(kind) or "").partition("\n\n")[0].split())


def _options(kind: type[Pass]) -> Iterator[str]:
    """Yield each option with its type or valid values, and its default."""
    types = option_types(kind)
    for field in fields(kind):
        type_name = getattr(types[field.name], "__name__", "")
        values = "|".join(kind.choices.get(field.name, ())) or type_name
        default = format_option(field.default)
        yield f"{field.name}=<{values}>" + (f"  default: {default}" if default else "")
