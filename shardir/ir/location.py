"""Positions in the user's program."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Loc:
    """The position in the user's program that an operation was traced from."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"
