"""Public functions that inspect their arguments and then call one other public function.

The signature of `x` determines everything that `ones_like(x)` reads of it. Outside of a trace the
native call cache therefore repeats the final call directly when the signature was seen before. A
function decorated with `@composed_function` guarantees that what it does depends only on the
signatures of arrays (unless they are arguments of the final call) and on the values of all other
arguments.
"""

from collections.abc import Callable
from functools import update_wrapper
from types import MethodType
from typing import TYPE_CHECKING, TypeVar

from shardir._imports.lazy_import import lazy_import
from shardir.backends.native import has_call_cache, vectorcall_class
from shardir.frontend.argument_errors import FOREIGN_ERRORS, raise_argument_error
from shardir.frontend.dispatch.recorded_calls import RecordedCall, recorded_calls
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.tracebacks import hide_own_frames
from shardir.frontend.tracing.trace import current_trace

if TYPE_CHECKING:
    from shardir.backends._native import CallCache
    from shardir.frontend.dispatch import native_call_cache
else:
    native_call_cache = lazy_import("shardir.frontend.dispatch.native_call_cache")

Function = TypeVar("Function", bound=UserFunction)


@vectorcall_class
class ComposedFunction:
    """A function decorated with `composed_function`."""

    __name__: str
    call_cache: "CallCache | None"
    __qualname__: str

    def __init__(self, fun: UserFunction, unused: bool, blind: bool) -> None:
        update_wrapper(self, fun)
        self._fun, self._unused, self._blind = fun, unused, blind

    def __call__(self, *args: PyTree, **options: PyTree) -> PyTree:
        try:
            try:
                return self._call(args, options)
            except FOREIGN_ERRORS as error:
                raise_argument_error(self._fun, self.__name__.strip("_"), args, options, error)
                raise
        except Exception as error:
            hide_own_frames(error)
            raise

    def _call(self, args: tuple[PyTree, ...], options: dict[str, PyTree]) -> PyTree:
        if (
            current_trace() is not None
            or recorded_calls.get() is not None
            or not has_call_cache(self)
        ):
            return self._fun(*args, **options)
        cache = self.call_cache
        if cache is not None and not cache.table.should_insert():
            return self._fun(*args, **options)
        done: list[RecordedCall] = []
        before = recorded_calls.set(done)
        try:
            made = self._fun(*args, **options)
        finally:
            recorded_calls.reset(before)
        # Without llvmlite there is no launch, and the native call cache cannot be imported.
        if len(done) == 1 and done[0].launch is not None:
            self._insert(made, done[0], args, options)
        elif cache is not None:
            cache.table.failed_inserts += 1
        return made

    def _insert(
        self, made: object, did: RecordedCall, args: tuple[PyTree, ...], options: dict[str, PyTree]
    ) -> None:
        cache = native_call_cache.call_cache_of(self, None)
        native_call_cache.insert_composed_call(
            cache, made, did, args, options, self._unused, self._blind
        )

    def share_call_cache(self, operator: object, swapped: bool) -> None:
        """Let `operator`, which calls this function, use the native call cache of this function.

        `swapped` exchanges the two arguments.
        """
        assert self.call_cache is not None
        native_call_cache.call_cache_of(operator, None, self.call_cache.table, swapped)

    def __get__(
        self, instance: object, owner: type | None = None
    ) -> "ComposedFunction | MethodType":
        return self if instance is None else MethodType(self, instance)

    def __reduce__(self) -> str:
        return self.__qualname__

    def __repr__(self) -> str:
        return f"<function {self.__module__}.{self.__qualname__}>"


def composed_function(
    *, unused: bool = False, blind: bool = False
) -> Callable[[Function], Function]:
    """Decorate a function that calls another public function.

    `unused`: the elements of the first argument are not used, only its signature.
    `blind`: the final call does not depend on the elements of arrays of other libraries, unless
    they are its arguments.
    """

    def decorate(fun: Function) -> Function:
        return ComposedFunction(fun, unused, blind)  # type: ignore[return-value]

    return decorate
