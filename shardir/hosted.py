"""Names in the text of a program that stand for functions of the program around it.

An operation may refer to a Python function: the rule of a derivative, what to call while it runs.
The text of a program has only its name, so a program that was read from text refers to nothing.
"""

from collections.abc import Callable
from typing import Any


class Hosted(str):
    """A name, and the function that it stands for.

    Reads and prints like the name. Two of them are equal when name and function are.
    """

    __slots__ = ("function",)

    function: Callable[..., Any]

    def __new__(cls, name: str, function: Callable[..., Any]) -> "Hosted":
        made = super().__new__(cls, name)
        made.function = function
        return made

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Hosted) and self.function is not other.function:
            return False
        return str.__eq__(self, other) is True

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


def function_of(name: str) -> Callable[..., Any] | None:
    """The function that a name stands for; `None` if it came from text."""
    return name.function if isinstance(name, Hosted) else None
