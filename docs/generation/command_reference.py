"""The page of the command line: usage, arguments, options and examples of each command."""

from typing import Any

import typer

from shardir.cli import app


def command_names() -> list[str]:
    """Return the names of the commands of `shardir`."""
    return [*_group().commands]


def command_page() -> str:
    """Return the Markdown page of the command `shardir`."""
    group = _group()
    context = typer.Context(group, info_name="shardir")
    rows = [
        f"| [`shardir {name}`](#shardir-{name}) | {_first_line(command.help)} |"
        for name, command in group.commands.items()
    ]
    parts = [
        "# Command line",
        str(group.help),
        "\n".join(["| command | effect |", "| --- | --- |", *rows]),
        _table("option", _parameters(group, "option"), context),
        *(_section(name, command, context) for name, command in group.commands.items()),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _group() -> Any:
    return typer.main.get_command(app)


def _first_line(text: str) -> str:
    return " ".join(text.partition("\n\n")[0].split())


def _section(name: str, command: Any, parent: Any) -> str:
    """Return the section of one command."""
    context = typer.Context(command, info_name=name, parent=parent)
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    parts = [
        f"(shardir-{name})=\n## shardir {name}",
        f"```text\n{usage}\n```",
        command.help.replace("\b\n", ""),
        _table("argument", _parameters(command, "argument"), context),
        _table("option", _parameters(command, "option"), context),
        _examples(command.epilog),
    ]
    return "\n\n".join(part for part in parts if part)


def _parameters(command: Any, kind: str) -> list[Any]:
    return [each for each in command.params if each.param_type_name == kind]


def _table(kind: str, parameters: list[Any], context: Any) -> str:
    """Return a table of arguments or options with their help texts."""
    rows = []
    for each in parameters:
        head, text = each.get_help_record(context)
        rows.append(f"| `{_cell(head)}` | {_cell(text)} |")
    return "\n".join([f"| {kind} | meaning |", "| --- | --- |", *rows]) if rows else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _examples(epilog: str | None) -> str:
    """Return the examples of a command as one block."""
    if not epilog:
        return ""
    _, _, lines = epilog.partition("\n")
    commands = [line.strip() for line in lines.splitlines() if line.strip()]
    return "Examples:\n\n```sh\n" + "\n".join(commands) + "\n```"
