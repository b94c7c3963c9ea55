"""A function in C++ that an emitted program carries along where it uses it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Helper:
    """The text of a function, and the functions that it uses."""

    text: str
    uses: tuple[str, ...] = ()
