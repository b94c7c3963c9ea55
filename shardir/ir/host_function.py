"""References from the IR to Python functions of the host program.

An attribute may refer to a Python function, such as a derivative rule or a callback. The text of a
program contains only its name, so a program that was parsed from text has no function.
"""

from collections.abc import Callable
from typing import Any


class HostFunction(str):
    """A string attribute with the function that it names.

    It reads and prints like the name. Two references are equal if their names and functions are
    equal.
    """

    __slots__ = ("function",)

    function: Callable[..., Any]

    def __new__(cls, name: str, function: Callable[..., Any]) -> "HostFunction":
        result = super().__new__(cls, name)
        result.function = function
        return result

    def __eq__(self, other: object) -> bool:
        if isinstance(other, HostFunction) and self.function is not other.function:
            return False
        return str.__eq__(self, other) is True

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


def host_function_of(name: str) -> Callable[..., Any] | None:
    """Return the function of a reference; `None` if it was parsed from text."""
    return name.function if isinstance(name, HostFunction) else None


def may_keep_operands(name: str) -> bool:
    """Return whether the function of a reference may read its operands after it has returned; it
    does not if its attribute `keeps_operands` is false."""
    return getattr(host_function_of(name), "keeps_operands", True) is not False


def absent_function_message(name: str) -> str:
    """Return the error message for a reference of which only the name is known."""
    return (
        f"{name!r} is a Python function, of which the text of a program contains only the name; "
        "run the traced program instead of its text"
    )
