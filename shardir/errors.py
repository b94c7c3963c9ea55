"""Errors say what is wrong, where, and what to do about it."""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice
from typing import Any

MOST_CHARACTERS = 8000
"""Of a whole message."""
MOST_IN_A_LINE = 1000
"""Characters of one line of a message."""
MOST_OF_A_SOURCE = 160
"""Characters of a line of the user's text that an error shows."""
MOST_TO_SUGGEST = 100
"""Characters of a name that is compared with known names."""

_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Control characters but for the end of a line and the tabulator, what turns the direction of
text, and halves of surrogate pairs, which no encoding has."""


def printable(text: str) -> str:
    """The text with its control characters escaped, but for ends of lines and tabulators."""
    return _UNPRINTABLE.sub(lambda found: ascii(found[0])[1:-1], text)


def clipped(text: str, most: int) -> str:
    """A text of at most about `most` characters: of a longer one the beginning and the end."""
    if len(text) <= most:
        return text
    start, end = most * 2 // 3, most // 4
    left_out = len(text) - start - end
    return f"{text[:start]} [... {left_out} characters ...] {text[-end:]}"


def bounded(message: str) -> str:
    """A message without control characters, of bounded lines and a bounded length."""
    lines = [printable(clipped(line, MOST_IN_A_LINE)) for line in message.split("\n")]
    return clipped("\n".join(lines), MOST_CHARACTERS)


class ShardirError(Exception):
    """Base of every error this package raises on purpose.

    Its message is of bounded length, whatever the size of what it speaks of, and control characters
    in it are escaped.
    """

    def __init__(self, *args: object, **options: Any) -> None:
        shown = (bounded(arg) if isinstance(arg, str) else arg for arg in args)
        super().__init__(*shown, **options)  # Of `ImportError`: the name of the module.

    begun = False
    """Whether a program was running already: what was donated to it may have been written over."""


class ParseError(ShardirError, ValueError):
    """Text that is not IR. Shows the line and points at the token."""

    def __init__(
        self, message: str, text: str, line: int, column: int, width: int, file: str
    ) -> None:
        self.line, self.column = line, column
        # The text may be long, so that only the line is looked for.
        start = 0
        for _ in range(line - 1):
            start = text.find("\n", start) + 1
        end = text.find("\n", start)
        source = text[start : len(text) if end < 0 else end] if line > 0 else ""
        before, shown, width = _window(source, column - 1, width)
        gutter = " " * len(str(line))
        indent = "".join(c if c == "\t" else " " for c in before)
        super().__init__(
            f"{message}\n"
            f"{gutter}--> {file}:{line}:{column}\n"
            f"{gutter} |\n"
            f"{line} | {before}{shown}\n"
            f"{gutter} | {indent}{'^' * max(width, 1)}"
        )


def _window(source: str, at: int, width: int) -> tuple[str, str, int]:
    """What a line has in front of a place and from there on, and how wide the place is shown."""
    before, after = source[:at].ljust(at), source[at:]
    if len(source) > MOST_OF_A_SOURCE:
        if len(before) > MOST_OF_A_SOURCE // 2:
            before = "... " + before[-(MOST_OF_A_SOURCE // 2) :]
        rest = MOST_OF_A_SOURCE - len(before)
        if len(after) > rest:
            after = after[:rest] + " ..."
            width = min(width, rest)
    shown = printable(after[:width])
    return printable(before), shown + printable(after[width:]), len(shown) if width else 0


class OperationTypeError(ShardirError, TypeError, ValueError):
    """Operands or attributes that an operation does not take.

    Of a wrong shape NumPy says ValueError, and JAX now the one, now the other: code that was
    written to catch either catches this.
    """


class VerifyError(ShardirError, ValueError):
    """A module that breaks the rules of the IR; lists every fault."""


class PipelineError(ShardirError, ValueError):
    """A pipeline that cannot be built from its text."""


class RuleError(ShardirError, ValueError):
    """A factor rule that cannot be read, or that does not fit an operation."""


class PropagateError(ShardirError, ValueError):
    """Shardings that cannot be propagated."""


class PartitionError(ShardirError, ValueError):
    """A program that cannot be cut the way its shardings ask."""


class DifferentiateError(ShardirError, TypeError, ValueError):
    """A program that has no derivative where one is asked for."""


class VectorizeError(ShardirError, TypeError, NotImplementedError):
    """A program that cannot be done many times at once."""


class MergeError(ShardirError, ValueError):
    """A per-device program that does not run as one program over the arrays of all devices."""


class InterpretError(ShardirError, RuntimeError):
    """A program that cannot be run as it is: wrong arguments, devices that disagree."""


class TimeLimitError(InterpretError):
    """A program that has not ended within the time it was given."""


class NumbersError(ShardirError, ArithmeticError):
    """A pass that changed what a program computes."""


class DrawError(ShardirError, RuntimeError):
    """A picture that cannot be drawn."""


class OpaqueOperationError(ShardirError, NotImplementedError):
    """An operation of another language that only its text is known of."""


class NoRule(ShardirError, NotImplementedError):
    """A target that has not been taught an operation."""

    def __init__(self, target: str, op: str, where: str, file: str) -> None:
        super().__init__(
            f"{op}{where}: target {target!r} has no lowering for it; write it with other "
            f"operations, or register a lowering in {file}"
        )


def suggestion(wrong: str, known: Iterable[str]) -> str:
    """`did you mean 'relu'?`, or nothing when no known name is close to the wrong one.

    Comparing takes time by the product of lengths, so that long names have none close to them.
    """
    if len(wrong) > MOST_TO_SUGGEST:
        return ""
    some = (name for name in islice(known, 10_000) if len(name) <= MOST_TO_SUGGEST)
    close = get_close_matches(wrong, list(some), n=1)
    return f"did you mean {close[0]!r}?" if close else ""


def counted(number: int, noun: str) -> str:
    """`1 result`, `2 results`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
