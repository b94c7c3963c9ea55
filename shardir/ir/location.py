"""Positions in the user's program."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Loc:
    """The position in the user's program that an operation was traced from."""

    file: str
    """The path of the source file."""
    line: int
    """The line in the file, from 1."""
    column: int
    """The column in the line in bytes of UTF-8, from 1."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"
