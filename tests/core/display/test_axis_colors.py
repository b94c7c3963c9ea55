"""An axis has one color in notebooks, reports, drawings and on terminals."""

import re

import pytest

from shardir.display.axis_colors import (
    DARK_BACKGROUNDS,
    INKS,
    LIGHT_BACKGROUNDS,
    NUM_COLORS,
    TERMINAL_BACKGROUNDS,
    terminal_text,
)
from shardir.frontend.report.writer import _asset
from tests.core.display.test_program_html import contrast


def test_reports_have_the_colors_of_notebooks() -> None:
    light, dark = _asset("report.css").split("@media (prefers-color-scheme: dark)")
    for part, backgrounds, texts in (
        (light, LIGHT_BACKGROUNDS, INKS),
        (dark, DARK_BACKGROUNDS, LIGHT_BACKGROUNDS),
    ):
        colors = dict(re.findall(r"--(axis[0-9](?:-back)?): (#[0-9a-f]{6});", part))
        assert [colors[f"axis{n}-back"] for n in range(NUM_COLORS)] == list(backgrounds)
        assert [colors[f"axis{n}"] for n in range(NUM_COLORS)] == list(texts)
    assert f"axes.size % {NUM_COLORS}" in _asset("report.js")


@pytest.mark.parametrize(
    ("backgrounds", "texts"),
    [(LIGHT_BACKGROUNDS, INKS), (DARK_BACKGROUNDS, LIGHT_BACKGROUNDS)],
)
def test_colored_text_is_readable(backgrounds: tuple[str, ...], texts: tuple[str, ...]) -> None:
    assert len(TERMINAL_BACKGROUNDS) == NUM_COLORS
    for background, text in zip(backgrounds, texts, strict=True):
        assert contrast(background, text) >= 4.5


def test_axes_are_in_color_on_a_terminal() -> None:
    data, model = "\x1b[30;48;5;117mdata\x1b[0m", "\x1b[30;48;5;215mmodel:(1)2\x1b[0m"
    text = "%x: f32[8@data, 16@(data, model:(1)2), 4@-] over model"
    assert terminal_text(text, ["data", "model"]) == (
        f"%x: f32[8@{data}, 16@({data}, {model}), 4@-] over model"
    )
