"""Every registered pass has a story named after it, with a step that runs it."""

from pathlib import Path

import pytest

from shardir.passes.pipeline import PASSES
from tests.story import HEADING

FOLDER = Path(__file__).parent


@pytest.mark.parametrize("name", sorted(PASSES))
def test_pass_has_a_story(name: str) -> None:
    _, *sections = HEADING.split((FOLDER / f"{name}.ir").read_text("utf-8"))
    steps = [step.partition("{")[0] for text in sections[::2] for step in text.split(",")]
    assert name in steps
