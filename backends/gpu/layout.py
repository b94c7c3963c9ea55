"""Lines that are too long, broken where a formatter would break them."""

_OPEN, _CLOSE = "([{", ")]}"


def wrapped(line: str, width: int) -> str:
    """A statement in lines of at most `width`, as far as brackets let it."""
    if len(line) <= width:
        return line
    indent = " " * (len(line) - len(line.lstrip()))
    found = _outermost(line)
    if found is None:
        return line
    begin, end = found
    inside, rest = line[begin + 1 : end], line[end:]
    inner = indent + "    "
    if len(inner) + len(inside) <= width and len(rest) + len(indent) <= width:
        return f"{line[: begin + 1]}\n{inner}{inside}\n{indent}{rest}"
    parts = _split(inside)
    comma = "," if len(parts) > 1 else ""
    parts = [wrapped(f"{inner}{part}{comma}", width) for part in parts]
    return "\n".join([line[: begin + 1], *parts, indent + rest])


def _outermost(line: str) -> tuple[int, int] | None:
    """The last pair of brackets of the outermost level that has anything inside."""
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
    return found


def _split(inside: str) -> list[str]:
    """The parts between the commas of the outermost level."""
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
