"""Functions of the namespace that look at their arguments, and then call another function.

What `ones_like(x)` asks of `x` is known from its signature, so that outside of a trace calls like
an earlier one can do at once what that did in the end. A function marked `@composed` promises that
what it does with arrays depends on their signatures alone, unless they are arguments of what it
does; and on the numbers and everything else that it is called with.
"""

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from functools import update_wrapper
from types import MethodType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from shardir.backends.base import Launch
from shardir.backends.cpu.native.runtime.callables import is_quick, quick_class
from shardir.frontend import tree
from shardir.frontend.refusals import FOREIGN, refuse
from shardir.frontend.trace import current

if TYPE_CHECKING:
    from shardir.backends.cpu.native.runtime.answering import Answers, Static

Function = TypeVar("Function", bound=Callable[..., Any])


class Did(NamedTuple):
    """What a call outside of traces did: it was `given` something, which made the `leaves` of a
    `launch`, and the launch `made` something."""

    given: Sequence[Any]
    launch: Launch | None
    leaves: Sequence[Any]
    structure: tree.PyTreeDef | None
    made: Any


watched: ContextVar[list[Did] | None] = ContextVar("shardir_watched", default=None)
"""Where calls are noted, if somebody wants to know what is done; machine code answers none then."""


@quick_class
class Composed:
    """A function that calls another one; see `composed`."""

    __name__: str
    __qualname__: str

    def __init__(self, fun: Callable[..., Any], unused: bool, blind: bool) -> None:
        update_wrapper(self, fun)
        self._fun, self._unused, self._blind = fun, unused, blind
        self._answers: Answers | None = None

    @property
    def static(self) -> "Static":
        from shardir.backends.cpu.native.runtime.answering import Static

        return Static(all=True)

    def __call__(self, *args: Any, **options: Any) -> Any:
        try:
            return self._called(args, options)
        except FOREIGN as error:
            refuse(self._fun, self.__name__, args, options, error)
            raise

    def _called(self, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        if current() is not None or watched.get() is not None or not is_quick(self):
            return self._fun(*args, **options)
        answers = self._answers
        if answers is not None and not answers.table.is_worth_it():
            return self._fun(*args, **options)
        done: list[Did] = []
        before = watched.set(done)
        try:
            made = self._fun(*args, **options)
        finally:
            watched.reset(before)
        if len(done) == 1 and done[0].launch is not None:
            self._learn(made, done[0], args, options)
        elif answers is not None:
            answers.table.failed += 1
        return made

    def _learn(self, made: Any, did: Did, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        from shardir.frontend.answers import answers_for, learn_composed

        answers = answers_for(self, self.static)
        if answers is not None:
            learn_composed(answers, made, did, args, options, self._unused, self._blind)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __reduce__(self) -> str:
        return self.__qualname__

    def __repr__(self) -> str:
        return f"<function {self.__module__}.{self.__qualname__}>"


def composed(*, unused: bool = False, blind: bool = False) -> Callable[[Function], Function]:
    """Mark a function that calls another one; with `unused`, of its first argument the signature
    is all that counts; `blind`: what it calls does not depend on the numbers in arrays of other
    libraries either that are arguments of that."""

    def decorate(fun: Function) -> Function:
        return Composed(fun, unused, blind)  # type: ignore[return-value]

    return decorate
