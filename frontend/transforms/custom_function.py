"""Base class of functions with a custom rule for one transformation."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from types import MethodType
from typing import Generic, TypeVar

from shardir.frontend.pytree_types import PyTree
from shardir.frontend.tracebacks import hide_own_frames
from shardir.frontend.tracing.parameters import function_name, positions_in_call
from shardir.frontend.tracing.trace import current_trace
from shardir.frontend.transforms.custom_rules import CustomCall, Primal, bind_positional
from shardir.frontend.wrappers import update_wrapper

Result = TypeVar("Result")


class CustomFunction(ABC, Generic[Result]):
    """Calls the function directly outside of traces, and emits one operation with the rule inside.

    `fixed` are the positions of arguments that the rule does not cover.
    """

    __name__: str
    __wrapped__: Callable[..., Result]

    def __init__(self, fun: Callable[..., Result], fixed: frozenset[int]) -> None:
        update_wrapper(self, fun)
        self._fun, self._name, self._fixed = fun, function_name(fun), fixed

    @property
    def fun(self) -> Callable[..., Result]:
        """The function without the rule."""
        return self._fun

    def __call__(self, *args: PyTree, **options: PyTree) -> Result:
        try:
            given = bind_positional(self._fun, self._name, args, options)
            self._check_rule()
            if current_trace() is None:
                return self._fun(*given)
            fixed = positions_in_call(self._name, self._fixed, len(given))
            call = CustomCall.of(self._fun, given, fixed)
            result: Result = self._emit(call, call.trace_primal(self._fun))
            return result
        except Exception as error:
            hide_own_frames(error)
            raise

    @abstractmethod
    def _check_rule(self) -> None:
        """Raise an error if a call requires a rule and none is set."""

    @abstractmethod
    def _emit(self, call: CustomCall, primal: Primal) -> PyTree:
        """Emit the operation of a call inside of a trace, and return its results."""

    def __get__(
        self, instance: object, owner: type | None = None
    ) -> "CustomFunction[Result] | MethodType":
        return self if instance is None else MethodType(self, instance)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._name}>"
