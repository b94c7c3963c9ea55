"""Colors of mesh axes, the same in notebooks, reports, drawings and on terminals.

The first axis of a program has the first color of each table. No color stands alone: it is that of
a text that states the name of its axis.
"""

import re
from collections.abc import Iterable, Iterator
from functools import cache

NUM_COLORS = 8
"""The number of colors of axes and devices; further ones repeat the first."""
LIGHT_BACKGROUNDS = (
    "#cfe3ff", "#ffe0b8", "#cdeecf", "#f6d0e4", "#e2d6fb", "#fbeea6", "#c6ecec", "#e6dccf",
)  # fmt: skip
DARK_BACKGROUNDS = (
    "#1f4a80", "#7a4a0c", "#23602a", "#7a2d58", "#533b8c", "#665a0a", "#155e5e", "#5c4a35",
)  # fmt: skip
"""The backgrounds of labels; the text on them has a contrast of at least 7:1."""
INKS = ("#0a4a99", "#7d3f00", "#145c22", "#7d1f57", "#4b2a91", "#5c4a00", "#06595c", "#5b4630")
"""The colors of lines and texts on white paper and on the light backgrounds."""
TERMINAL_BACKGROUNDS = (117, 215, 150, 218, 147, 186, 159, 180)
"""The backgrounds of black text in the xterm palette."""

NAME = r'(?:[\w.]+|"(?:[^"\\\n]|\\.)*")'
AXIS = rf"{NAME}(?::\(\d+\)\d+)?"
AXES = rf"{AXIS}(?:, {AXIS})*"


@cache
def tokens() -> re.Pattern[str]:
    """Return the pattern of the parts of a line that are not plain text."""
    return re.compile(
        r"(?P<comment>//.*)"
        r'|(?P<string>"(?:[^"\\\n]|\\.)*")'
        rf"|(?P<value>%{NAME})"
        rf"|(?P<extent>(?<=[\[ ])(?P<declared>{NAME})(?==\d+[,\]]))"
        rf"|(?P<cut>(?<=\d)@(?:\((?P<many>{AXES})\)|(?P<one>{AXIS})))"
        rf"|(?P<marks>\b(?:replicated|unreduced(?:\[\w+\])?)\((?P<marked>{AXES})\))"
        r"|(?P<attribute>\b(?:axes|in_axes|out_axes|axis)="
        rf"\[?(?P<axes>{AXES})\]?)"
        r"|(?P<keyword>(?<![@%\w.])(?:mesh|spmd|func|return|yield)\b(?=[ \n]|$))"
        r"|(?P<name>(?<![@%\w.])[A-Za-z_][\w-]*(?=\())"
    )


AXIS_GROUPS = ("declared", "many", "one", "marked", "axes")
"""The groups of `tokens` that contain axes."""


def number_axes(axes: Iterable[str], lines: Iterable[str]) -> dict[str, int]:
    """Return the numbers of the colors of `axes`, followed by other axes of shardings in lines."""
    colors = {name: number for number, name in enumerate(dict.fromkeys(axes))}
    for line in lines:
        for token in tokens().finditer(line):
            for axis in axes_of(token):
                colors.setdefault(axis, len(colors))
    return colors


def axes_of(token: re.Match[str]) -> Iterator[str]:
    """Yield the names of the axes in a token."""
    for group in ("many", "one", "marked"):
        for axis in (token[group] or "").split(", "):
            if axis.strip():
                yield axis.partition(":")[0]


def terminal_text(text: str, axes: Iterable[str]) -> str:
    """Return the text of a report with the axes of shardings in color for a terminal.

    `axes` are the names of mesh axes in the order of their colors.
    """
    colors = number_axes(axes, text.splitlines())

    def paint(axis: str) -> str:
        color = colors.get(axis.partition(":")[0])
        if color is None:
            return axis
        return f"\x1b[30;48;5;{TERMINAL_BACKGROUNDS[color % NUM_COLORS]}m{axis}\x1b[0m"

    def paint_token(token: re.Match[str]) -> str:
        group = next((each for each in AXIS_GROUPS if token[each]), None)
        if group is None:
            return token[0]
        start, end = token.start(group) - token.start(), token.end(group) - token.start()
        painted = "".join(map(paint, re.split(r"(, )", token[group])))
        return f"{token[0][:start]}{painted}{token[0][end:]}"

    return tokens().sub(paint_token, text)
