"""Public functions that inspect their arguments and then call one other public function.

The signature of `x` determines everything that `ones_like(x)` reads of it. Outside of a trace the
native call cache therefore repeats the final call directly when the signature was seen before. A
function decorated with `@composed_function` guarantees that what it does depends only on the
signatures of arrays (unless they are arguments of the final call) and on the values of all other
arguments.
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
    """A record of one call outside of traces: the arguments, the leaves of the `launch`, and its
    result."""

    given: Sequence[Any]
    launch: Launch | None
    leaves: Sequence[Any]
    structure: tree.PyTreeDef | None
    made: Any


watched: ContextVar[list[Did] | None] = ContextVar("shardir_watched", default=None)
"""The list that records calls while it is set; the native call cache is bypassed then."""


@quick_class
class Composed:
    """A function decorated with `composed_function`."""

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
    """Decorate a function that calls another public function.

    `unused`: the elements of the first argument are not used, only its signature. `blind`: the
    final call does not depend on the elements of arrays of other libraries, unless they are its
    arguments.
    """

    def decorate(fun: Function) -> Function:
        return Composed(fun, unused, blind)  # type: ignore[return-value]

    return decorate
