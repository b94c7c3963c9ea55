"""`shardir test` checks story files: `.ir` files that show a program after each pipeline."""

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from shardir.errors import ShardirError, count_noun
from shardir.frontend.cli.files import CommandError
from shardir.frontend.stories.story_files import (
    StoryError,
    StoryStep,
    find_stories,
    read_story,
    update_story,
)
from shardir.frontend.stories.story_syntax import HEADING_EXAMPLE

EXAMPLES = """Examples:

  shardir test stories/mlp.ir

  shardir test stories/

  shardir test stories/ --update"""


def check_stories(
    path: Annotated[Path, typer.Argument(help="a story file, or a folder of story files")],
    update: Annotated[
        bool,
        typer.Option("--update", help="rewrite the stories with the results of their pipelines"),
    ] = False,
) -> None:
    """Check that the pipelines of story files make the programs that the files show.

    A story file is IR text. A heading such as // ===== propagate names the pipeline that makes the
    program below the heading of the program above it. The results of all programs must be equal.
    """
    steps: Counter[bool] = Counter()
    files = _story_files(path)
    for file in files:
        if update and not _update(file):
            steps[False] += len(read_story(file).steps)
            continue
        for step in read_story(file).steps:
            steps[_check_step(step)] += 1
    counted = f"{count_noun(steps.total(), 'step')} of {count_noun(len(files), 'story file')}"
    typer.echo(f"{counted}: {steps[True]} passed, {steps[False]} failed")
    if steps[False]:
        raise typer.Exit(1)


def _story_files(path: Path) -> list[Path]:
    """Return the story files that a path names."""
    if not path.is_dir():
        try:
            read_story(path)
        except StoryError as error:
            raise CommandError(str(error)) from None
        return [path]
    files = list(find_stories(path))
    if not files:
        raise CommandError(
            f"{path} has no story: no .ir file in it has a heading such as '{HEADING_EXAMPLE}'"
        )
    return files


def _update(file: Path) -> bool:
    """Rewrite a story file and print its name if it changes; return whether its pipelines ran."""
    try:
        if update_story(file):
            typer.echo(f"{file}: updated")
    except ShardirError as error:
        typer.echo(f"{file}: cannot be updated")
        _print_error(error)
        return False
    return True


def _check_step(step: StoryStep) -> bool:
    """Check a step, and print a line with the result."""
    try:
        step.check()
    except ShardirError as error:
        typer.echo(f"{step.path}:{step.line}: {step.pipeline}: failed")
        _print_error(error)
        return False
    typer.echo(f"{step.path}:{step.line}: {step.pipeline}: passed")
    return True


def _print_error(error: ShardirError) -> None:
    for line in (str(error), *getattr(error, "__notes__", ())):
        typer.echo(line)
