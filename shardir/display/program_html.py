"""Programs and reports as HTML: the printed text with colored labels of axes and foldable blocks.

The text of the output is the printed text, so that a selection can be copied into a `.ir` file.
"""

import re
from collections.abc import Iterable, Iterator, Mapping

from shardir.display.axis_colors import AXIS_GROUPS, NAME, number_axes, tokens
from shardir.display.html_elements import Html, join, label, output, tag

MAX_HTML_LINES = 1000
"""Maximum number of lines of a program or a report in HTML."""
MAX_HTML_COLUMNS = 2000
"""Maximum length of a line in HTML, in characters."""
MAX_OPEN_LINES = 40
"""Blocks with more lines are folded at first."""

_LINE_END = re.compile(
    r' loc\((?P<file>"(?:[^"\\]|\\.)*"):(?P<line>\d+):\d+\)(?: why\((?P<why>"(?:[^"\\]|\\.)*")\))?'
    r"(?= \{$|$)"
    r'| why\((?P<only>"(?:[^"\\]|\\.)*")\)(?= \{$|$)'
)
"""The location and the reason of an operation, at the end of its line."""


def program_html(text: str) -> Html:
    """Return the text of a program as a notebook output.

    The colors of mesh axes are in the order in which the text declares them; axes of shardings on a
    mesh that it does not declare follow.
    """
    lines = _shorten(text.rstrip("\n").split("\n"))
    colors = number_axes(_declared_axes(lines), lines)
    body, _ = _block(lines, 0, colors)
    return output(tag("div", body, class_="sd-code"))


def report_html(text: str) -> Html:
    """Return the text of a report as a notebook output with colored labels of axes."""
    lines = _shorten(text.rstrip("\n").split("\n"))
    colors = number_axes((), lines)
    return output(tag("pre", [join([_line(line, colors), "\n"]) for line in lines]))


def _shorten(lines: list[str]) -> list[str]:
    """Return the lines without the middle if there are more than `MAX_HTML_LINES`."""
    if len(lines) > MAX_HTML_LINES:
        half = MAX_HTML_LINES // 2
        note = f"// ... {len(lines) - 2 * half:,} lines omitted; print(x) shows all ..."
        lines = [*lines[:half], note, *lines[-half:]]
    return [
        line
        if len(line) <= MAX_HTML_COLUMNS
        else f"{line[:MAX_HTML_COLUMNS]} ... {len(line):,} characters"
        for line in lines
    ]


def _declared_axes(lines: Iterable[str]) -> Iterator[str]:
    """Yield the axes that lines such as `mesh @mesh = [data=4, model=2]` declare."""
    for line in lines:
        if line.startswith("mesh @"):
            yield from re.findall(rf"[\[ ]({NAME})=\d+", line)


def _block(lines: list[str], at: int, colors: Mapping[str, int]) -> tuple[list[Html], int]:
    """Return the elements of the lines from `at` to the end of their block, and the next line.

    A line that ends with `{` begins a foldable block.
    """
    elements: list[Html] = []
    while at < len(lines):
        line = lines[at]
        if line.lstrip().startswith("}"):
            return elements, at
        at += 1
        # The head of a function has a line for each parameter.
        head = [line]
        if line.endswith("(") and not line.startswith(" "):
            while at < len(lines) and not head[-1].endswith("{"):
                head.append(lines[at])
                at += 1
        if not f" {head[-1]}".endswith(" {"):
            elements.append(tag("div", _line(line, colors) if line else tag("br")))
            continue
        while True:
            inner, end = _block(lines, at, colors)
            size = end - at
            is_open = "open" if size <= MAX_OPEN_LINES or not line.startswith(" ") else None
            summary = [join([_line(each, colors), "\n"]) for each in head[:-1]]
            summary.append(_line(head[-1], colors))
            elements.append(
                tag(
                    "details",
                    tag("summary", summary),
                    tag("div", inner, class_="sd-b"),
                    open=is_open,
                )
            )
            closing = lines[end] if end < len(lines) else ""
            at = end + 1
            if not closing.endswith(" {"):
                if closing:
                    elements.append(tag("div", _line(closing, colors)))
                break
            head = [closing]
    return elements, at


def _line(line: str, colors: Mapping[str, int]) -> Html:
    """Return a line with colored axes; its location and reason become a note at the end."""
    match = _LINE_END.search(line)
    note: list[str] = []
    rest = ""
    if match:
        line, rest = line[: match.start()], line[match.end() :]
        why = (match["why"] or match["only"] or "")[1:-1]
        if match["file"]:
            file = match["file"][1:-1]
            short = f"{file.rpartition('/')[2]}:{match['line']}"
            note.append(tag("span", f"  {short}", class_="sd-n", title=f"{file}:{match['line']}"))
        if why:
            note.append(tag("span", f"  {why}", class_="sd-n"))
    parts: list[str] = []
    last = 0
    for token in tokens().finditer(line):
        parts += [line[last : token.start()], _token(token, colors)]
        last = token.end()
    return join([*parts, line[last:], rest, *note])


def _token(token: re.Match[str], colors: Mapping[str, int]) -> Html:
    text = token[0]
    match token.lastgroup:
        case "comment":
            return tag("span", text, class_="sd-d")
        case "keyword":
            return tag("span", text, class_="sd-k")
        case "name":
            return tag("span", text, class_="sd-k")
        case _:
            if inner := next((g for g in AXIS_GROUPS if token[g]), None):
                start, end = token.start(inner) - token.start(), token.end(inner) - token.start()
                return join([text[:start], _axis_labels(text[start:end], colors), text[end:]])
            return join([text])


def _axis_labels(text: str, colors: Mapping[str, int]) -> Html:
    """Return a list of axes, as printed, with a label for each known one."""
    return join(
        piece if (color := colors.get(piece.partition(":")[0])) is None else label(piece, color)
        for piece in re.split(r"(, )", text)
    )
