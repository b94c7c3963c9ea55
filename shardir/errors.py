"""Error classes. Each message states what is wrong, where, and what to do."""

import os
import re
from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice
from typing import Self

__all__ = [
    "ConcretizationTypeError", "DifferentiateError", "DrawError",
    "InconclusiveDimensionOperation", "InterpretError", "JAXIndexError", "JAXTypeError",
    "JaxRuntimeError", "JaxprTypeError", "KeyReuseError", "MergeError", "NoRule",
    "NonConcreteBooleanIndexError", "NumbersError", "OpaqueOperationError",
    "OperationTypeError", "OutOfMemoryError", "ParseError", "PartitionError", "PipelineError",
    "PropagateError", "RuleError", "ShardirError", "TimeLimitError",
    "TracerArrayConversionError", "TracerBoolConversionError", "TracerIntegerConversionError",
    "UnexpectedTracerError", "VectorizeError", "VerifyError",
]  # fmt: skip


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__


HIDDEN_FRAMES_NOTE = "The traceback omits frames of shardir; SHARDIR_TRACEBACK=full shows them."
"""The note on errors without some of their frames."""
MAX_MESSAGE_CHARACTERS = 8000
"""The maximum length of a message."""
MAX_LINE_CHARACTERS = 1000
"""The maximum length of one line of a message."""
MAX_SOURCE_CHARACTERS = 160
"""The maximum number of characters of a line of user text that an error shows."""
MAX_SUGGESTION_CHARACTERS = 100
"""The maximum length of a name that is compared with known names."""

_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Control characters except newline and tab, bidirectional controls, and lone surrogates, which no
encoding can represent.
"""


def escape_control_characters(text: str) -> str:
    """Return the text with control characters escaped, except newlines and tabs."""
    return _UNPRINTABLE.sub(lambda match: ascii(match[0])[1:-1], text)


def clip_text(text: str, most: int) -> str:
    """Return a text of at most about `most` characters: the start and the end of a longer text."""
    if len(text) <= most:
        return text
    start, end = most * 2 // 3, most // 4
    left_out = len(text) - start - end
    return f"{text[:start]} [... {left_out} characters ...] {text[-end:]}"


def bound_message(message: str) -> str:
    """Return the message without control characters, with bounded lines and bounded length."""
    lines = [
        escape_control_characters(clip_text(line, MAX_LINE_CHARACTERS))
        for line in message.split("\n")
    ]
    return clip_text("\n".join(lines), MAX_MESSAGE_CHARACTERS)


class ShardirError(Exception):
    """Base class of the errors that this package raises deliberately.

    The message has a bounded length whatever the size of the values that it shows, and its control
    characters are escaped.
    """

    def __init__(self, *args: object, **options: object) -> None:
        shown = (bound_message(arg) if isinstance(arg, str) else arg for arg in args)
        super().__init__(*shown, **options)  # ImportError accepts the module's name as a keyword.

    foreign: Exception | None = None
    """The exception of Python or NumPy that this error repeats. A public function in which it
    occurs names its argument instead, if one is the cause.
    """

    def repeat(self, foreign: Exception) -> Self:
        """Mark this error as a repetition of `foreign`, and return it."""
        self.foreign = foreign
        return self

    has_started = False
    """True if execution had started, so that donated arrays may have been overwritten."""


class JAXTypeError(ShardirError, TypeError):
    """Base class of errors about values whose elements are unknown while a function is traced."""


class JAXIndexError(ShardirError, IndexError):
    """Base class of errors about indices whose elements are unknown while a function is traced."""


class ConcretizationTypeError(JAXTypeError):
    """A function needs the concrete elements of a traced value."""


class TracerArrayConversionError(JAXTypeError):
    """A traced value is converted to a NumPy array."""


class TracerBoolConversionError(ConcretizationTypeError):
    """A traced value is used where Python needs a truth value."""


class TracerIntegerConversionError(JAXTypeError):
    """A traced value is used where Python needs an integer, such as an index of a list."""


class NonConcreteBooleanIndexError(JAXIndexError):
    """A traced mask is used as an index, so the number of selected elements is unknown."""


class UnexpectedTracerError(JAXTypeError):
    """A traced value is used after its trace has ended, or in a trace that does not enclose it."""


class JaxRuntimeError(ShardirError, RuntimeError):
    """Base class of errors of programs that have been compiled: of their execution and memory."""


class JaxprTypeError(ShardirError, TypeError):
    """Base class of errors about programs that violate the rules of their representation."""


class KeyReuseError(JAXTypeError):
    """A random key is used twice. No function raises it: keys are not tracked here."""


class InconclusiveDimensionOperation(ShardirError):
    """A comparison of symbolic dimensions has no answer. No function raises it: shapes here are
    constant.
    """


class ParseError(ShardirError, ValueError):
    """Text that is not valid IR. The message shows the line and marks the token."""

    def __init__(
        self, message: str, text: str, line: int, column: int, width: int, file: str
    ) -> None:
        self.line, self.column = line, column
        # The text may be long; extract only the line.
        start = 0
        for _ in range(line - 1):
            start = text.find("\n", start) + 1
        end = text.find("\n", start)
        source = text[start : len(text) if end < 0 else end] if line > 0 else ""
        before, shown, width = _source_window(source, column - 1, width)
        gutter = " " * len(str(line))
        indent = "".join(c if c == "\t" else " " for c in before)
        super().__init__(
            f"{message}\n"
            f"{gutter}--> {file}:{line}:{column}\n"
            f"{gutter} |\n"
            f"{line} | {before}{shown}\n"
            f"{gutter} | {indent}{'^' * max(width, 1)}"
        )


def _source_window(source: str, at: int, width: int) -> tuple[str, str, int]:
    """Return the text of a line before and from a column on, and the width of the marked part."""
    before, after = source[:at].ljust(at), source[at:]
    if len(source) > MAX_SOURCE_CHARACTERS:
        if len(before) > MAX_SOURCE_CHARACTERS // 2:
            before = "... " + before[-(MAX_SOURCE_CHARACTERS // 2) :]
        rest = MAX_SOURCE_CHARACTERS - len(before)
        if len(after) > rest:
            after = after[:rest] + " ..."
            width = min(width, rest)
    shown = escape_control_characters(after[:width])
    return (
        escape_control_characters(before),
        shown + escape_control_characters(after[width:]),
        len(shown) if width else 0,
    )


class OperationTypeError(ShardirError, TypeError, ValueError):
    """Operands or attributes that an operation does not accept.

    NumPy raises ValueError for an invalid shape and JAX raises either TypeError or ValueError; this
    class derives from both, so that code which catches either one works.
    """


class VerifyError(JaxprTypeError, ValueError):
    """A module that violates the rules of the IR; the message lists every fault."""


class PipelineError(ShardirError, ValueError):
    """A pipeline that cannot be built from its text."""


class DistributedError(ShardirError, RuntimeError):
    """Processes cannot join, or an operation needs data or devices of other processes."""


class OutOfMemoryError(JaxRuntimeError, MemoryError):
    """Memory that the system, or a limit, refuses. No state was changed."""


class MachineError(ShardirError, ValueError):
    """A machine description lacks a number or is not valid, or a mesh does not fit the machine."""


class RuleError(ShardirError, ValueError):
    """A factor rule that cannot be parsed, or that does not fit an operation."""


class PropagateError(ShardirError, ValueError):
    """Shardings that cannot be propagated."""


class PartitionError(ShardirError, ValueError):
    """A program that cannot be partitioned as its shardings request."""


class DifferentiateError(ShardirError, TypeError, ValueError):
    """A program that is not differentiable where a derivative is requested."""


class VectorizeError(ShardirError, TypeError, NotImplementedError):
    """A program that cannot be vectorized (vmap)."""


class MergeError(ShardirError, ValueError):
    """A per-device program that cannot be converted to one program over batched arrays."""


class InterpretError(JaxRuntimeError):
    """A program that cannot be executed: invalid arguments, or diverging devices."""


class TimeLimitError(InterpretError):
    """A program that exceeds its time limit."""


class NumbersError(ShardirError, ArithmeticError):
    """A pass that changed the result of a program."""


class DrawError(ShardirError, RuntimeError):
    """A picture that cannot be drawn."""


class OpaqueOperationError(ShardirError, NotImplementedError):
    """An operation of another dialect of which only the text is available."""


class NoRule(ShardirError, NotImplementedError):
    """An operation for which a target has no rule."""

    def __init__(self, target: str, op: str, where: str, line: str, how: str) -> None:
        super().__init__(
            f"{op}{where}: target {target!r} has no rule for the operation\n"
            f"  | {line}\n"
            f"write it with other operations, or add a rule: {how}"
        )


def suggest_name(wrong: str, names: Iterable[str]) -> str:
    """Return `did you mean 'relu'?`, or an empty text if no known name is close.

    The time of the comparison is proportional to the product of the lengths, so long names are not
    compared.
    """
    if len(wrong) > MAX_SUGGESTION_CHARACTERS:
        return ""
    some = (name for name in islice(names, 10_000) if len(name) <= MAX_SUGGESTION_CHARACTERS)
    close = get_close_matches(wrong, list(some), n=1)
    return f"did you mean {close[0]!r}?" if close else ""


def os_error_reason(error: Exception) -> str:
    """Return why an operation on a file or socket failed, from the error that Python raised."""
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8 text"
    return getattr(error, "strerror", None) or str(error)


def missing_file_reason(path: str | os.PathLike[str]) -> str:
    """Return why there is no file of this path; the reason names the folder."""
    if os.path.isdir(path):
        return "it is a folder, not a file"
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        return f"there is no folder {folder!r}"
    return f"the folder {folder!r} has no such file"


def count_noun(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun: `1 result`, `2 results`; `plural` is an irregular plural."""
    return f"{number} {noun}" if number == 1 else f"{number} {plural or noun + 's'}"


def state_count(number: int, noun: str) -> str:
    """Return a clause that states a number: `there is 1 device`, `there are 2 devices`."""
    return f"there {'is' if number == 1 else 'are'} {count_noun(number, noun)}"
