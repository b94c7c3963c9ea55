"""What several commands take, and what it means."""

from collections.abc import Iterable
from typing import Annotated

import typer

from shardir.frontend.cli_files import CommandError

File = Annotated[str, typer.Argument(help="a file of IR text, or - for standard input")]

FileOrFunction = Annotated[
    str, typer.Argument(help="a file of IR text, - for standard input, or module:function")
]

Seed = Annotated[int, typer.Option(min=0, help="of the random arguments")]

MeshSizes = Annotated[
    str | None, typer.Option(help="of a function: the mesh, as in data=16,model=16")
]

Arguments = Annotated[
    str | None,
    typer.Option(help="of a function: module:name of its arguments; otherwise example_args"),
]

Specs = Annotated[
    str | None,
    typer.Option(help="of a function: module:name of their specs; otherwise example_specs"),
]

Stated = Annotated[
    list[str] | None,
    typer.Option("--rule", help="how cuts pass an operation: my_op: i j, j k -> i k reduction={j}"),
]


def stated_rules(texts: Iterable[str]) -> dict[str, str]:
    """Rules by the names of operations, which stand before a colon."""
    stated = {}
    for text in texts:
        name, colon, rule = text.partition(": ")
        if not colon:
            raise CommandError(f"{text!r} states no rule; write it as my_op: i j, j k -> i k")
        stated[name.strip()] = rule.strip()
    return stated
