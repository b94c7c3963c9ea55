"""Every registered pass has a story named after it, with a step that runs it."""

from pathlib import Path

import pytest

from shardir.frontend.stories.story_files import find_stories, read_story
from shardir.passes.pipeline import PASSES

FOLDER = Path(__file__).parent


@pytest.mark.parametrize("name", sorted(PASSES))
def test_pass_has_a_story(name: str) -> None:
    story = read_story(FOLDER / f"{name}.ir")
    passes = [each.partition("{")[0] for step in story.steps for each in step.pipeline.split(",")]
    assert name in passes


def test_every_file_is_a_story() -> None:
    assert list(find_stories(FOLDER)) == sorted(FOLDER.glob("*.ir"))
