"""`shardir test` checks story files (`.ir` files that show a program after each pipeline), and
functions: their sharded programs compute the same results as the unsharded ones."""

import os
from collections import Counter
from pathlib import Path

import typer

from shardir.errors import ShardirError, count_noun
from shardir.frontend.cli.options import CommandError
from shardir.frontend.cli.targets import check_file_options, is_function_name, load_target
from shardir.frontend.stories.pipeline_check import result_difference
from shardir.frontend.stories.story_files import (
    StoryError,
    StoryStep,
    find_stories,
    read_story,
    update_story,
)
from shardir.frontend.stories.story_syntax import HEADING_EXAMPLE
from shardir.interpret.random_arguments import random_arguments
from shardir.passes.pipeline import Pipeline
from shardir.verify.verifier import verify


def check_stories(
    path: str,
    update: bool,
    passes: str | None,
    mesh: str | None,
    args: str | None,
    specs: str | None,
) -> None:
    """Check the story files that a path names, or a function."""
    if is_function_name(path):
        if update:
            raise CommandError(f"--update is for story files, and {path!r} is a function")
        _check_function(path, passes, mesh, args, specs)
        return
    check_file_options(path, mesh, args, specs)
    if passes is not None:
        raise CommandError(
            f"--passes is for functions, and {path!r} is a file; its headings name the pipelines"
        )
    _check_stories(Path(path), update)


def _check_function(
    target: str, passes: str | None, mesh: str | None, args: str | None, specs: str | None
) -> None:
    """Print whether the pipeline keeps the results of a function; exit with 1 if not."""
    program = load_target(target, mesh, args, specs)
    pipeline = Pipeline.parse(program.pipeline(passes))
    made = pipeline(program.module)
    verify(made)
    given = program.fill_arguments(random_arguments(program.module))
    wrong = result_difference(program.module, made, given)
    typer.echo(f"{target}: {pipeline}: {'failed' if wrong else 'passed'}")
    if wrong:
        typer.echo(wrong)
        raise typer.Exit(1)


def _check_stories(path: Path, update: bool) -> None:
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
    if not os.path.isdir(path):
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
