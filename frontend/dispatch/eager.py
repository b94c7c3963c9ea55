"""Public functions of the namespaces, which run inside and outside of a trace.

A function decorated with `@public` is written once, for tracers. Inside a trace it runs directly
and its operations become part of the traced program, even if none of its own arguments is traced
(`snp.zeros(3)` inside `jit` makes no array). Outside of any trace a call is a program of one
function: arrays and numbers become its parameters, and everything else is part of the cache key of
the compiled program. Sharding rules, errors and results are those of `jit`, because both use the
same path.

The native call cache (`CallCache`) repeats a call with arrays, numbers and static arguments
that were seen before without running Python code. Without it, the Python tier repeats a call with
arrays and numbers.
"""

from collections.abc import Callable, Iterable
from functools import update_wrapper
from types import MethodType
from typing import TYPE_CHECKING, TypeVar

from shardir._imports.lazy_import import lazy_import
from shardir.backends.native import native, vectorcall_class
from shardir.frontend.argument_errors import (
    FOREIGN_ERRORS,
    raise_argument_error,
    raise_memory_error,
)
from shardir.frontend.arrays.array import Array
from shardir.frontend.dispatch.call_table import is_current
from shardir.frontend.dispatch.eager_call import EagerFunction, call_eagerly
from shardir.frontend.dispatch.scalar_arguments import NUMBER_TYPES, number_as_array
from shardir.frontend.pytree import tree
from shardir.frontend.pytree.tree_checks import check_acyclic
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.shardings.resharding import call_with_out_sharding
from shardir.frontend.tracebacks import hide_own_frames
from shardir.frontend.tracing.trace import current_trace

if TYPE_CHECKING:
    from shardir.backends._native import CallCache
    from shardir.frontend.dispatch import native_call_cache
else:
    native_call_cache = lazy_import("shardir.frontend.dispatch.native_call_cache")

Function = TypeVar("Function", bound=UserFunction)


def public(
    *, static: Iterable[str] = (), cached: bool = True, name: str = ""
) -> Callable[[Function], Function]:
    """Mark a function of a namespace, which accepts arrays and tracers.

    `static` names the parameters whose values determine the program (axes, dtypes, shapes, flags,
    functions). The function receives them unchanged; they must be hashable (lists and slices count
    as hashable). All other parameters are pytrees of arrays and numbers, which the function
    receives as tracers. `None`, slices, strings, `...` and dtypes inside of them are static.

    `cached=False` is for functions that call a function of the user. What that function refers to
    may change between calls, so it is traced at every call, though compiled only once.

    The function does not receive a parameter `out_sharding`. The caller sets the sharding of the
    result with it (`resharding.call_with_out_sharding`).

    `name` is the public name in errors and programs, if it differs from the name of the function.

    The function returns a pytree of tracers (or of objects that `as_tracer` accepts).
    """

    def decorate(fun: Function) -> Function:
        outside = EagerFunction(fun, tuple(static), cached, name or fun.__name__.strip("_"))
        return PublicFunction(fun, outside)  # type: ignore[return-value]

    return decorate


@vectorcall_class
class PublicFunction:
    """A public function of a namespace."""

    __name__: str
    call_cache: "CallCache | None"
    __qualname__: str

    def __init__(self, fun: UserFunction, outside: EagerFunction) -> None:
        update_wrapper(self, fun)
        self._fun, self.eager = fun, outside
        self._has_out_sharding = "out_sharding" in outside.names
        outside.public_function = self

    def __call__(self, *args: PyTree, **options: PyTree) -> PyTree:
        try:
            try:
                # The Python tier; with the native tier such calls do not get here.
                if native is None and not options:
                    leaves = [number_as_array(x) if type(x) in NUMBER_TYPES else x for x in args]
                    key = tuple([x.signature if type(x) is Array else None for x in leaves])
                    known = self.eager.calls.get(key)
                    if known is not None:
                        _, structure, launch, context = known
                        if is_current(context):
                            made = launch(leaves)
                            if made is not None:
                                return (
                                    made[0]
                                    if structure is None
                                    else tree.unflatten(structure, made)
                                )
                if self._has_out_sharding and "out_sharding" in options:
                    return self._call_with_out_sharding(args, dict(options))
                if current_trace() is not None:
                    return self._fun(*args, **options)
                return call_eagerly(self.eager, args, options)
            except FOREIGN_ERRORS as error:
                raise_argument_error(self._fun, self.eager.name, args, options, error)
                raise
            except MemoryError as error:
                raise_memory_error(self.eager.name, error)
            except RecursionError:
                check_acyclic((*args, *options.values()))
                raise
        except Exception as error:
            hide_own_frames(error)
            raise

    def _call_with_out_sharding(
        self, args: tuple[PyTree, ...], options: dict[str, PyTree]
    ) -> object:
        out_sharding = options.pop("out_sharding")
        return call_with_out_sharding(out_sharding, self, *args, **options)

    def share_call_cache(self, operator: object, swapped: bool) -> None:
        """Let `operator`, which calls this function, use the native call cache of this function.

        `swapped` exchanges the two arguments.
        """
        assert self.call_cache is not None
        static, table = (self.eager.static_positions, self.eager.static), self.call_cache.table
        native_call_cache.call_cache_of(operator, static, table, swapped)

    def __get__(self, instance: object, owner: type | None = None) -> "PublicFunction | MethodType":
        return self if instance is None else MethodType(self, instance)

    def __reduce__(self) -> str:
        return self.__qualname__

    def __repr__(self) -> str:
        return f"<function {self.__module__}.{self.__qualname__}>"
