"""Representations in a REPL: the text of programs and tables, without the middle if it is long.

`repr(x)` has at most `MAX_LINES` lines of at most `MAX_COLUMNS` characters; `print(x)` shows all.
"""

from functools import singledispatch
from importlib import import_module

MAX_LINES = 60
"""Maximum number of lines of a representation."""
MAX_COLUMNS = 400
"""Maximum length of a line of a representation, in characters."""
MAX_ITEMS = 64
"""Maximum number of items of a sequence in a representation."""


def abbreviate(text: str, *, comment: str = "", whole: str = "print(x)") -> str:
    """Return `text` without its middle lines, and without the middle of its lines, if it is long.

    `comment` begins a comment in the language of the text. `whole` is the expression that shows
    all.
    """
    lines = text.rstrip("\n").split("\n")
    if omitted := max(0, len(lines) - MAX_LINES):
        omitted += 1  # One line states the omission.
        head = (MAX_LINES - 1) * 2 // 3
        note = (
            f"{comment}... {omitted:,} lines omitted: a representation has at most {MAX_LINES} "
            f"lines; {whole} shows all ..."
        )
        lines = [*lines[:head], note, *lines[head + omitted :]]
    return "\n".join(map(_abbreviate_line, lines))


def _abbreviate_line(line: str) -> str:
    if len(line) <= MAX_COLUMNS:
        return line
    note = f" ... {len(line):,} characters ... "
    tail = MAX_COLUMNS // 4
    return line[: MAX_COLUMNS - tail - len(note)] + note + line[-tail:]


def abbreviate_items(items: tuple[object, ...] | list[object]) -> str:
    """Return the items of a sequence in square brackets, without the middle if there are many."""
    if len(items) <= MAX_ITEMS:
        return f"[{', '.join(map(repr, items))}]"
    half = MAX_ITEMS // 2
    head, tail = (", ".join(map(repr, part)) for part in (items[:half], items[-half:]))
    return f"[{head}, ... {len(items) - 2 * half:,} omitted ..., {tail}]"


@singledispatch
def ir_text(item: object, *, locations: bool = False) -> str:
    """Return a program, or a part of one, as text; with `locations`, with origins and reasons.

    `shardir.text.printer` registers an implementation for each class, because the text form is
    defined above the IR. The first call imports it: if the IR imported it, most modules below the
    IR could not be the first one that a program imports.
    """
    import_module("shardir.text.printer")
    if ir_text.dispatch(type(item)) is ir_text.dispatch(object):
        raise NotImplementedError(type(item).__name__)
    return ir_text(item, locations=locations)


class Printed:
    """Base class of objects whose representation is the abbreviated text that `ir_text` returns."""

    __slots__ = ()

    def __str__(self) -> str:
        return ir_text(self)

    def __repr__(self) -> str:
        return abbreviate(str(self), comment="// ")

    def _repr_html_(self) -> str:
        # Imported late for start-up time.
        from shardir.display.program_html import program_html

        return program_html(ir_text(self, locations=True))
