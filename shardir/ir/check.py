"""Checks of running programs: conditions with messages, which are host functions of callbacks."""

from dataclasses import dataclass
from typing import Any

from shardir import errors


class JaxRuntimeError(errors.JaxRuntimeError, ValueError):
    """A check of a running program failed.

    As in JAX, `checkify` has a class of this name that is a `ValueError`.
    """


@dataclass(frozen=True)
class Check:
    """A condition that must hold, with the format of its message.

    It is called with the condition and the arguments of the format; `keywords` are the names of the
    last arguments. With `is_debug`, a program that calls it has no error.
    """

    template: str
    keywords: tuple[str, ...] = ()
    is_debug: bool = False

    def __call__(self, condition: Any, *args: Any) -> None:
        if not condition and not self.is_debug:
            raise JaxRuntimeError(self.format_message(*args))

    def format_message(self, *args: Any) -> str:
        """Return the message for arguments of its format."""
        count = len(args) - len(self.keywords)
        named = dict(zip(self.keywords, args[count:], strict=True))
        return self.template.format(*args[:count], **named)
