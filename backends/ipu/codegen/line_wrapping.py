"""Break lines of C++ that are too long."""

MAX_LINE_CHARACTERS = 100
_OPERATORS = (" + ", " - ", " * ", " / ", " && ", " || ", " ^ ", " | ", " & ")
_VIEWS = (".reshape({", ".dimShuffle({", ".broadcast(", ".slice(")


def wrap_statement(line: str, indent: str) -> list[str]:
    """Split a statement into lines of at most 100 characters, after commas or before methods.

    The break is at the lowest nesting depth; strings are never broken.
    """
    if len(indent) + len(line) <= MAX_LINE_CHARACTERS:
        return [indent + line]
    lines, rest, inner = [], line, indent
    while len(inner) + len(rest) > MAX_LINE_CHARACTERS:
        at = _find_break(rest, MAX_LINE_CHARACTERS - len(inner))
        if at is None:
            break
        lines.append(inner + rest[:at].rstrip())
        rest, inner = rest[at:].lstrip(), indent + "    "
    return [*lines, inner + rest]


def _find_break(text: str, room: int) -> int | None:
    """Return the position of a break: after the last comma or operator of the lowest nesting depth.

    A position near the beginning of the line is used only if there is no other. The line may also
    be broken before the methods of views.
    """
    best: tuple[int, int, int] | None = None
    depth, quoted = 0, False
    for i, character in enumerate(text):
        if character == '"' and (i == 0 or text[i - 1] != "\\"):
            quoted = not quoted
        if quoted:
            continue
        if character in "({[":
            depth += 1
        elif character in ")}]":
            depth -= 1
        if i >= room:
            break
        end = _find_separator_end(text, i)
        if end is not None and end <= room:
            key = (int(end < room // 8), 2 * depth + (text[end - 1] != ","), -end)
            best = key if best is None else min(best, key)
    if best is not None:
        return -best[2]
    equals = text.find(" = ")
    if 0 < equals < room - 2:
        return equals + 3
    later = text.find(", ")
    return later + 1 if later >= 0 else None


def _find_separator_end(text: str, i: int) -> int | None:
    """Return the end of a comma or operator that begins at `i`, or `None`."""
    if text[i : i + 2] == ", ":
        return i + 1
    if text.startswith(_VIEWS, i) and i > 0:
        return i
    for operator in _OPERATORS:
        if text.startswith(operator, i):
            return i + len(operator) - 1
    return None
