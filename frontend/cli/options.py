"""Options shared by several commands, and the error of an invalid command."""

from collections.abc import Callable, Iterable
from enum import StrEnum
from functools import wraps
from inspect import Parameter, signature
from typing import Annotated

import typer

from shardir.errors import ShardirError
from shardir.plugins.registry import load_plugin


class CommandError(ShardirError):
    """A command has an invalid argument or input file."""


class ModuleFormat(StrEnum):
    """The languages in which a module can be read and printed."""

    ir = "ir"
    stablehlo = "stablehlo"


class ReportFormat(StrEnum):
    """The forms in which `explain --to` prints a report."""

    text = "text"
    json = "json"
    trace_events = "trace-events"
    model_explorer = "model-explorer"


class SimulationFormat(StrEnum):
    """The forms in which `simulate --to` prints a simulation."""

    text = "text"
    trace_events = "trace-events"


class PlanFormat(StrEnum):
    """The forms in which `plan --export` prints a plan."""

    jax = "jax"
    ir = "ir"
    sdy = "sdy"


File = Annotated[str, typer.Argument(help="file of IR or StableHLO text, or - for standard input")]

FileOrFunction = Annotated[
    str,
    typer.Argument(help="file of IR or StableHLO text, - for standard input, or module:function"),
]

Seed = Annotated[int, typer.Option(min=0, help="seed of the random arguments")]

MeshSizes = Annotated[
    str | None,
    typer.Option(help="mesh axes and their sizes, for module:function: data=16,model=16"),
]

Arguments = Annotated[
    str | None,
    typer.Option(
        help="example arguments of module:function, as module:name (default: example_args)"
    ),
]

Specs = Annotated[
    str | None,
    typer.Option(help="PartitionSpecs of the arguments, as module:name (default: example_specs)"),
]

RuleTexts = Annotated[
    list[str] | None,
    typer.Option(
        "--rule", help="sharding rule of an operation: my_op: i j, j k -> i k reduction={j}"
    ),
]


Plugins = Annotated[
    list[str] | None,
    typer.Option(
        "--load",
        help="load passes, operations or targets: a file (mypass.py), a module, or module:name",
    ),
]


def with_load(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with the option `--load`."""

    @wraps(command)
    def loading(*args: object, load: list[str] | None = None, **options: object) -> None:
        for plugin in load or ():
            load_plugin(plugin)
        command(*args, **options)

    own = signature(command)
    option = Parameter("load", Parameter.KEYWORD_ONLY, default=None, annotation=Plugins)
    loading.__signature__ = own.replace(  # type: ignore[attr-defined]
        parameters=[*own.parameters.values(), option]
    )
    loading.__annotations__ = {**command.__annotations__, "load": Plugins}
    return loading


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
