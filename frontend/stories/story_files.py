"""Stories: programs in a file, each of which a pipeline makes of the program above it.

A story is IR text split by headings such as `// ===== propagate`. The text below a heading must be
exactly what that pipeline makes of the program above it, and must compute what the first program
computes.
"""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from shardir.errors import ShardirError, os_error_reason
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.stories.pipeline_check import (
    parse_valid_program,
    result_difference,
    run_pipeline,
    text_difference,
)
from shardir.frontend.stories.story_syntax import (
    HEADING_EXAMPLE,
    Section,
    has_heading,
    join_sections,
    split_sections,
)
from shardir.ir.module import Module

SUFFIX = ".ir"
"""The suffix of story files."""


class StoryError(ShardirError, AssertionError):
    """A story that differs from the results of its pipelines, or a file that is not a story."""


@dataclass(frozen=True)
class StoryStep:
    """One step of a story: a pipeline, with the programs before and after it."""

    path: Path
    """The path of the file."""
    number: int
    """The position of the step in its story, from 1."""
    first: Section
    """The first section of the story."""
    before: Section
    """The section with the program before the pipeline."""
    after: Section
    """The section with the pipeline and the program after it."""

    def __repr__(self) -> str:
        return f"<StoryStep {self.number} {self.pipeline!r} of {self.path}:{self.line}>"

    @property
    def pipeline(self) -> str:
        """The pipeline that the heading names."""
        return self.after.pipeline or ""

    @property
    def line(self) -> int:
        """The line of the heading."""
        return self.after.heading_line

    def check(self) -> None:
        """Check that the pipeline makes the text of this step, with the results of the first text.

        Raises `StoryError` with the difference, `ParseError`, or the error of a pass.
        """
        first, before, after = (
            _parse_section(self.path, each, "" if each is self.first else _UPDATE_HINT)
            for each in (self.first, self.before, self.after)
        )
        made = run_pipeline(self.pipeline, before)
        name = f"{self.path}:{self.line}: step {self.number}, {self.pipeline!r},"
        wrong = result_difference(first, made)
        if diff := text_difference(after, made, "story", "result"):
            results = f"other results ({wrong})" if wrong else "the same results"
            raise StoryError(
                f"{name} makes another program than the story shows\n{diff}\n"
                f"The first program and the new one compute {results}. "
                f"If the new program is right, update the story: shardir test {self.path} "
                "--update, or pytest --update-stories"
            )
        if wrong:
            raise StoryError(
                f"{name} makes a program that computes other results than the first program: "
                f"{wrong}"
            )


@dataclass(frozen=True)
class Story:
    """A story file: its sections, and the steps between them."""

    path: Path
    """The path of the file."""
    sections: tuple[Section, ...]
    """The sections, in the order of the file."""

    def __repr__(self) -> str:
        return f"<Story of {len(self.sections) - 1} steps, {self.path}>"

    @property
    def steps(self) -> tuple[StoryStep, ...]:
        """The steps in their order."""
        pairs = zip(self.sections, self.sections[1:], strict=False)
        return tuple(
            StoryStep(self.path, number, self.sections[0], before, after)
            for number, (before, after) in enumerate(pairs, 1)
        )

    def check(self) -> None:
        """Check every step; raise the error of the first step that differs (`StoryStep.check`)."""
        for step in self.steps:
            step.check()

    def regenerate(self) -> str:
        """Return the text of the story in which each pipeline makes each section anew.

        The first section, the headings and the comments above programs stay.
        """
        first, *rest = self.sections
        module = _parse_section(self.path, first)
        result = [first]
        for section in rest:
            module = run_pipeline(section.pipeline or "", module)
            result.append(replace(section, text=f"{section.comments}{module}"))
        return join_sections(result)


@with_argument_errors
def read_story(path: str | os.PathLike[str]) -> Story:
    """Return the story of a file; raise `StoryError` if the file has none."""
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:  # A path with a NUL byte raises ValueError.
        reason = os_error_reason(error)
        raise StoryError(f"cannot read {str(path)!r}: {reason}") from None
    sections = split_sections(text)
    if len(sections) == 1:
        raise StoryError(
            f"{path} has no step; write a heading such as '{HEADING_EXAMPLE}' above the program "
            "after each pipeline"
        )
    return Story(file, tuple(sections))


def update_story(path: str | os.PathLike[str]) -> bool:
    """Rewrite a story file with `Story.regenerate`; return whether the text has changed."""
    updated = read_story(path).regenerate()
    file = Path(path).resolve()
    # Several processes of pytest-xdist may update one file, and must not read half of a text.
    part = file.with_name(f".{file.name}.{os.getpid()}.part")
    try:
        if updated == file.read_text(encoding="utf-8"):
            return False
        part.write_text(updated, encoding="utf-8")
        shutil.copymode(file, part)
        part.replace(file)
    except OSError as error:
        raise StoryError(f"cannot write {str(path)!r}: {error.strerror}") from None
    finally:
        part.unlink(missing_ok=True)
    return True


def find_stories(folder: Path) -> Iterator[Path]:
    """Yield the story files in a folder and its subfolders, except hidden ones, in sorted order."""
    found: list[Path] = []
    # Unlike `Path.rglob`, `os.walk` goes on if another process removes a folder.
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += (
            Path(parent, name)
            for name in names
            if name.endswith(SUFFIX) and not name.startswith(".")
        )
    yield from (path for path in sorted(found) if os.path.isfile(path) and has_heading(path))


_UPDATE_HINT = "; the option --update of `shardir test` writes the program after each pipeline"


def _parse_section(path: Path, section: Section, hint: str = "") -> Module:
    module = parse_valid_program(section.text, str(path), section.line)
    if not module.functions:
        raise StoryError(f"{path}:{section.line}: this section has no function{hint}")
    return module
