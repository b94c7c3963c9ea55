"""Declarations of commands, and completion of their words by a shell.

The declaration of a command is a function with its options and help text, and without code. Each
function of completion returns the possible continuations of a word, and imports the table of the
names only then, so that other completions start without the compiler.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from importlib import import_module
from typing import TYPE_CHECKING, Annotated

import typer

from shardir._imports.lazy_import import lazy_import
from shardir.frontend.cli.options import with_load

if TYPE_CHECKING:
    from shardir.backends import emission
    from shardir.machine import description_files
    from shardir.passes import pipeline
else:
    pipeline = lazy_import("shardir.passes.pipeline")
    emission = lazy_import("shardir.backends.emission")
    description_files = lazy_import("shardir.machine.description_files")


@dataclass(frozen=True)
class Command:
    """A command of `shardir`."""

    name: str
    examples: str
    """The end of its help text."""
    implementation: str
    """The function that runs it, as `module:function`; the module is in `shardir.frontend.cli`."""
    run: Callable[..., None]
    """The command with its options; it imports the module of the implementation."""


def command(
    name: str, implementation: str, *, examples: Sequence[str]
) -> Callable[[Callable[..., None]], Command]:
    """Return a decorator that makes a command of a function with its options and help text.

    The implementation receives all options by name.
    """

    def declare(declaration: Callable[..., None]) -> Command:
        @wraps(declaration)
        def run(**options: object) -> None:
            module, _, function = implementation.partition(":")
            getattr(import_module(f"shardir.frontend.cli.{module}"), function)(**options)

        listed = "".join(f"\n\n  {example}" for example in examples)
        return Command(name, f"Examples:{listed}", implementation, with_load(run))

    return declare


def complete_pass(incomplete: str) -> list[str]:
    """Return the names of passes that begin with a word."""
    return [name for name in pipeline.PASSES.names() if name.startswith(incomplete)]


def complete_pipeline(incomplete: str) -> list[str]:
    """Return the pipelines that continue the last pass of a pipeline."""
    before, comma, last = incomplete.rpartition(",")
    names = [pipeline.DEFAULT_STEP, pipeline.EMPTY_STEP, *pipeline.PASSES.names()]
    return [f"{before}{comma}{name}" for name in names if name.startswith(last)]


PassPipeline = Annotated[
    str | None,
    typer.Option(
        help="pass pipeline, such as default,overlap (default: that of jit)",
        autocompletion=complete_pipeline,
    ),
]


def complete_target(incomplete: str) -> list[str]:
    """Return the names of targets that begin with a word."""
    return [name for name in emission.TARGETS.names() if name.startswith(incomplete)]


def complete_machine(incomplete: str) -> list[str]:
    """Return the names of machine descriptions that begin with a word."""
    names = [*description_files.list_descriptions(), description_files.LOCAL]
    return [name for name in names if name.startswith(incomplete)]
