"""The syntax of story files: sections of IR text, of which all but the first have a heading.

A heading is a line such as `// ===== propagate,reshard`, which names a pipeline. This module
imports nothing heavy, because the pytest plug-in looks for headings in every `.ir` file of a
project.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

HEADING_START = "// ===== "
"""The beginning of a line that names the pipeline of the section below it."""
UPDATE_VARIABLE = "SHARDIR_UPDATE"
"""The environment variable that makes `assert_pass` write golden files, if it is 1."""
HEADING_EXAMPLE = f"{HEADING_START}propagate"
"""A heading, for errors."""

_HEADING = re.compile(rf"^{HEADING_START}[ \t]*(\S.*?)[ \t]*$\n*", re.MULTILINE)
_COMMENTS = re.compile(r"(?:[ \t]*(?://.*)?\n)*")


@dataclass(frozen=True)
class Section:
    """A program of a story: its text, the line where it starts, and the pipeline that makes it."""

    text: str
    line: int = 1
    pipeline: str | None = None
    """`None` for the first section, which has no heading."""
    heading_line: int = 1

    @property
    def comments(self) -> str:
        """The comments and empty lines above the program."""
        result = _COMMENTS.match(self.text)
        return result[0] if result else ""


def split_sections(text: str) -> list[Section]:
    """Return the sections of a story, or a single section for a text without a heading."""
    headings = list(_HEADING.finditer(text))
    ends = [heading.start() for heading in headings] + [len(text)]
    sections = [Section(text[: ends[0]])]
    for heading, end in zip(headings, ends[1:], strict=True):
        line = text.count("\n", 0, heading.end()) + 1
        above = text.count("\n", 0, heading.start()) + 1
        sections.append(Section(text[heading.end() : end], line, heading[1], above))
    return sections


def join_sections(sections: Sequence[Section]) -> str:
    """Return the text of a story."""
    first, *steps = [section.text.rstrip("\n") + "\n" for section in sections]
    headings = [f"{HEADING_START}{section.pipeline}\n" for section in sections[1:]]
    return "\n".join([first, *(f"{a}\n{b}" for a, b in zip(headings, steps, strict=True))])


def has_heading(path: Path) -> bool:
    """Return whether a file contains the heading of a step; `False` if it cannot be read."""
    start = HEADING_START.encode()
    try:
        with path.open("rb") as file:
            return any(line.startswith(start) and line[len(start) :].strip() for line in file)
    except OSError:
        return False
