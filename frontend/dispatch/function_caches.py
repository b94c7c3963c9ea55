"""The caches of compiled calls and traces, which all results of `jit` of one function share.

As in JAX, `jit(f)` in a loop compiles `f` once: the caches belong to `f` and to the options of
`jit`, and exist as long as `f`.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field
from types import FunctionType
from weakref import WeakKeyDictionary

from shardir.frontend.dispatch.cache_info import CompilationLog
from shardir.frontend.dispatch.call_table import CallTable
from shardir.frontend.dispatch.inlined_traces import InlinedTraces
from shardir.frontend.dispatch.programs.deferred_arguments import ChosenCalls
from shardir.frontend.pytree import tree
from shardir.frontend.pytree_types import UserFunction
from shardir.frontend.shardings.deferred_sharding import DeferredSharding


@dataclass(slots=True)
class FunctionCaches:
    """The compiled calls of a function, its traces in other programs, the shardings that `AUTO`
    chose, and the record of compilations."""

    calls: CallTable = field(default_factory=CallTable)
    traces: InlinedTraces = field(default_factory=InlinedTraces)
    chosen: ChosenCalls = field(default_factory=ChosenCalls)
    compilations: CompilationLog = field(default_factory=CompilationLog)

    def clear(self) -> None:
        self.compilations.clear()
        self.chosen.clear()
        self.calls.clear()
        self.traces.clear()


_caches: WeakKeyDictionary[FunctionType, dict[Hashable, FunctionCaches]] = WeakKeyDictionary()


def find_caches(fun: UserFunction, options: Hashable) -> FunctionCaches:
    """Return the caches of a function for options of `jit`.

    New ones are returned for options that have no hash, for callable objects other than functions,
    whose equality the user may define and whose attributes may change, and for `AUTO`, because a
    chosen sharding depends on the earlier calls of a result of `jit`.
    """
    try:
        is_deferred = any(isinstance(each, DeferredSharding) for each in tree.leaves(options))
        if is_deferred or type(fun) is not FunctionType:
            return FunctionCaches()
        return _caches.setdefault(fun, {}).setdefault(options, FunctionCaches())
    except Exception:  # A `__hash__` or an `__eq__` may raise any exception.
        return FunctionCaches()


def clear_function_caches() -> None:
    """Clear the caches of all functions, those without a result of `jit` that still exists, too."""
    for by_options in list(_caches.values()):
        for caches in by_options.values():
            caches.clear()
    _caches.clear()
