"""A C++ helper function that emitted programs contain if they use it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CppHelper:
    """The text of a C++ function, and the names of the helpers that it uses."""

    text: str
    uses: tuple[str, ...] = ()
