"""The declaration of a command: a function with its options and help text, and without code."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from importlib import import_module

from shardir.frontend.cli.options import with_load


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
