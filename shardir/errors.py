"""Errors say what is wrong, where, and what to do about it."""

from collections.abc import Iterable
from difflib import get_close_matches


class ShardirError(Exception):
    """Base of every error this package raises on purpose."""

    begun = False
    """Whether a program was running already: what was donated to it may have been written over."""


class ParseError(ShardirError, ValueError):
    """Text that is not IR. Shows the line and points at the token."""

    def __init__(
        self, message: str, text: str, line: int, column: int, width: int, file: str
    ) -> None:
        self.line, self.column = line, column
        lines = text.split("\n")
        source = lines[line - 1] if 0 < line <= len(lines) else ""
        gutter = " " * len(str(line))
        indent = "".join(c if c == "\t" else " " for c in source[: column - 1].ljust(column - 1))
        super().__init__(
            f"{message}\n"
            f"{gutter}--> {file}:{line}:{column}\n"
            f"{gutter} |\n"
            f"{line} | {source}\n"
            f"{gutter} | {indent}{'^' * max(width, 1)}"
        )


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


class VectorizeError(ShardirError, TypeError):
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


class NoRule(ShardirError, NotImplementedError):
    """A target that has not been taught an operation."""

    def __init__(self, target: str, op: str, where: str, file: str) -> None:
        super().__init__(
            f"{op}{where}: target {target!r} has no lowering for it; write it with other "
            f"operations, or register a lowering in {file}"
        )


def suggestion(wrong: str, known: Iterable[str]) -> str:
    """`did you mean 'relu'?`, or nothing when no known name is close to the wrong one."""
    close = get_close_matches(wrong, list(known), n=1)
    return f"did you mean {close[0]!r}?" if close else ""


def counted(number: int, noun: str) -> str:
    """`1 result`, `2 results`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
