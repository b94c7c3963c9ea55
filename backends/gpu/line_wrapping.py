"""Break lines that are too long, as a code formatter would."""

_OPEN, _CLOSE = "([{", ")]}"


def wrap_line(line: str, width: int) -> str:
    """Split a statement into lines of at most `width` characters where its brackets permit it."""
    if len(line) <= width:
        return line
    indent = " " * (len(line) - len(line.lstrip()))
    found = _find_outermost_brackets(line)
    if found is None:
        return line
    begin, end = found
    inside, rest = line[begin + 1 : end], line[end:]
    inner = indent + "    "
    if len(inner) + len(inside) <= width and len(rest) + len(indent) <= width:
        return f"{line[: begin + 1]}\n{inner}{inside}\n{indent}{rest}"
    parts = _split_at_commas(inside)
    comma = "," if len(parts) > 1 else ""
    if not comma and " for " in inside:
        parts = list(inside.replace(" for ", "\nfor ", 1).splitlines())
    parts = [wrap_line(f"{inner}{part}{comma}", width) for part in parts]
    return "\n".join([line[: begin + 1], *parts, indent + rest])


def wrap_code(text: str, width: int) -> str:
    """Break the overlong lines of a text of code, except those inside multi-line strings."""
    lines: list[str] = []
    quoted = False
    for line in text.splitlines():
        inside = quoted
        quoted ^= line.count('"""') % 2 == 1
        if inside or quoted or len(line) <= width:
            lines.append(line)
        elif lines and lines[-1].endswith("(") and not line.rstrip().endswith(("(", ",")):
            indent = line[: len(line) - len(line.lstrip())]
            lines += [f"{indent}{part}," for part in _split_at_commas(line)]
        else:
            lines += wrap_line(line, width).splitlines()
    return "\n".join(lines)


def _find_outermost_brackets(line: str) -> tuple[int, int] | None:
    """Return the last non-empty outermost pair of brackets; for a `def` the first one."""
    depth, begin, found, quoted = 0, 0, None, ""
    for at, char in enumerate(line):
        if quoted:
            quoted = "" if char == quoted else quoted
        elif char in "\"'":
            quoted = char
        elif char in _OPEN:
            begin = at if depth == 0 else begin
            depth += 1
        elif char in _CLOSE:
            depth -= 1
            if depth == 0 and at > begin + 1:
                found = begin, at
                if line.lstrip().startswith("def "):
                    return found
    return found


def _split_at_commas(inside: str) -> list[str]:
    """Split the text at the commas of the outermost level."""
    parts, depth, start, quoted = [], 0, 0, ""
    for at, char in enumerate(inside):
        if quoted:
            quoted = "" if char == quoted else quoted
        elif char in "\"'":
            quoted = char
        elif char in _OPEN:
            depth += 1
        elif char in _CLOSE:
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(inside[start:at].strip())
            start = at + 1
    last = inside[start:].strip()
    return [*parts, last] if last else parts
