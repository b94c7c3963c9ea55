"""The before/after example in the docstring of each pass is an excerpt of a story that runs it.

An example consists of statements in backticks, with words in between. `...` in a statement stands
for any text, and a statement may omit the type at its end. Stories are executed by the plug-in.
"""

import re
import sys
from pathlib import Path

import pytest

from shardir.frontend.stories.story_files import find_stories, read_story
from shardir.passes.pipeline import PASSES

STORIES = Path(__file__).parents[1] / "stories"
EXAMPLE = re.compile(r"^before:(?P<before>.*?)^after:(?P<after>.*?)(?:\n\n|\Z)", re.M | re.S)
STATEMENT = re.compile(r"%[\w.]+(, %[\w.]+)* = |%[\w.]+: |return |(spmd )?func ")
DEFINED = re.compile(r"(%[\w.]+)(?=(?:, %[\w.]+)* = |: )")


def examples(docstring: str) -> list[tuple[str, str]]:
    """Return the examples of a docstring, before and after the pass."""
    return [(each["before"], each["after"]) for each in EXAMPLE.finditer(docstring)]


def statements(example: str) -> list[str]:
    """Return the statements of one side of an example; other text in backticks only explains."""
    quoted = [" ".join(each.split()) for each in re.findall(r"`([^`]*)`", example)]
    return [each for each in quoted if STATEMENT.match(each)]


def has_statement(program: str, statement: str) -> bool:
    """Return True if a program, in one line, contains a statement."""
    parts = [re.escape(part.strip()) for part in statement.split("...")]
    return re.search(rf"(?<!\S){'.*?'.join(parts)}(?=[\s,]|$)", program) is not None


def shows(example: tuple[str, str], before: str, after: str) -> bool:
    """Return True if a step of a story, from a program to the next one, shows an example."""
    programs = [" ".join(each.split()) for each in (before, after)]
    found = all(
        has_statement(program, statement)
        for program, side in zip(programs, example, strict=True)
        for statement in statements(side)
    )
    removed = {name for each in statements(example[0]) for name in DEFINED.findall(each)}
    removed -= set(re.findall(r"%[\w.]*\w", example[1]))
    return found and removed.isdisjoint(DEFINED.findall(programs[1]))


def named_passes(pipeline: str) -> list[str]:
    return re.findall(r"(?:^|,)([\w-]+)(?![\w=-])", re.sub(r"\{[^}]*\}", "", pipeline))


STEPS = [step for path in find_stories(STORIES) for step in read_story(path).steps]


@pytest.mark.parametrize("name", sorted(PASSES))
def test_examples_are_excerpts_of_stories(name: str) -> None:
    found = examples(sys.modules[PASSES[name].__module__].__doc__ or "")
    steps = [step for step in STEPS if name in named_passes(step.pipeline)]
    assert found
    for example in found:
        assert all(map(statements, example))
        assert any(shows(example, step.before.text, step.after.text) for step in steps), example


STEP = ("%a = exp(%x) : f32[2]\n%b = exp(%x) : f32[2]\n", "%a = exp(%x) : f32[2]\nreturn %a\n")


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        ("`%a = exp(%x)`, `%b = exp(%x)`", "`%a = exp(%x) : f32[2]`", True),
        ("`%a = exp(...) : f32[2]`", "`%a = exp(%x)`, which is `exp` of `%x`", True),
        ("`%a = exp(%x) : f32[3]`", "`%a = exp(%x)`", False),
        ("`%a = exp(%x)`", "`%c = exp(%x)`", False),
        ("`%a = exp(%x)`", "`return %a`", True),
        ("`%a = exp(%x)`", "`return %x`", False),
    ],
)
def test_an_example_is_compared_with_a_step(before: str, after: str, shown: bool) -> None:
    assert shows((before, after), *STEP) is shown


def test_an_example_states_which_values_are_removed() -> None:
    assert not shows(("`%a = exp(%x)`", "`return ...`"), *STEP)
    assert shows(("`%b = exp(%x)`", "`return ...`"), *STEP)
