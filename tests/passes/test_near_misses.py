"""Passes keep the results of programs that resemble those that they change."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from shardir.frontend.stories.pipeline_check import parse_valid_program, result_difference
from shardir.frontend.stories.story_files import StoryStep, find_stories, read_story
from shardir.ir.dtypes import RBG_KEYS
from shardir.ir.module import Module
from shardir.ir.types import NumpyArray
from shardir.text.parser import parse
from tests.programs.near_misses import disagreements, near_misses

STORIES = Path(__file__).parents[1] / "stories"
STEPS = [step for path in find_stories(STORIES) for step in read_story(path).steps]


def difference_of_numbers(first: Module, second: Module, arguments: Sequence[NumpyArray]) -> str:
    """Return how results differ if none is a key of four words.

    The pass `expand-rbg-keys` returns its words instead, which its own tests compare.
    """
    returned = first.main.body.ops[-1].operands
    has_keys = any(value.type.dtype in RBG_KEYS for value in returned)
    return "" if has_keys else result_difference(first, second, arguments)


@pytest.mark.parametrize("step", STEPS, ids=lambda step: f"{step.path.stem} {step.number}")
def test_programs_that_resemble_those_of_stories(step: StoryStep) -> None:
    module = parse_valid_program(step.before.text, str(step.path), step.before.line)
    found = disagreements(module, step.pipeline, difference_of_numbers)
    assert not found, found[0]


def test_near_misses_change_operands_attributes_names_uses_dtypes_and_sizes() -> None:
    module = parse("""\
func @f(%a: f32[2], %b: f32[2]) -> (f32[2]) {
  %c = sub(%a, %b) : f32[2]
  %d = concatenate(%a, %c, dim=0) : f32[4]
  %e = slice(%d, starts=[1], strides=[1]) : f32[2]
  return %e
}
""")
    lines = {line.strip() for each in near_misses(module) for line in str(each).splitlines()}
    assert {
        "%c = sub(%b, %a) : f32[2]",
        "%c = sub(%a, %a) : f32[2]",
        "%c = add(%a, %b) : f32[2]",
        "%c = sub(%a.negative, %b) : f32[2]",
        "%c = sub(%a, %b) : bf16[2]",
        "%c = sub(%a, %b) : f32[4]",
        "%e = slice(%d, starts=[2], strides=[1]) : f32[2]",
        "return %e, %c",
    } <= lines
