"""Options shared by several commands."""

from collections.abc import Iterable
from typing import Annotated

import typer

from shardir.frontend.cli.files import CommandError

File = Annotated[str, typer.Argument(help="a file of IR text, or - for standard input")]

FileOrFunction = Annotated[
    str, typer.Argument(help="a file of IR text, - for standard input, or module:function")
]

Seed = Annotated[int, typer.Option(min=0, help="seed of the random arguments")]

MeshSizes = Annotated[
    str | None, typer.Option(help="mesh for a function, such as data=16,model=16")
]

Arguments = Annotated[
    str | None,
    typer.Option(help="arguments of a function, as module:name (default: example_args)"),
]

Specs = Annotated[
    str | None,
    typer.Option(help="specs of the arguments, as module:name (default: example_specs)"),
]

RuleTexts = Annotated[
    list[str] | None,
    typer.Option(
        "--rule", help="sharding rule of an operation: my_op: i j, j k -> i k reduction={j}"
    ),
]


def parse_rules(texts: Iterable[str]) -> dict[str, str]:
    """Return the sharding rules by operation name, from texts of the form "name: rule"."""
    stated = {}
    for text in texts:
        name, colon, rule = text.partition(": ")
        if not colon:
            raise CommandError(
                f"{text!r} is not a sharding rule; write it as my_op: i j, j k -> i k"
            )
        stated[name.strip()] = rule.strip()
    return stated
