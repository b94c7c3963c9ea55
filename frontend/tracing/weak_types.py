"""Weak types of the results of functions.

An operation of weakly typed operands has weakly typed results, so functions composed of operations
keep weak types. JAX composes some functions with constants that are not weakly typed, and their
results are not weakly typed either. Functions with the same results are marked with these
decorators.
"""

from collections.abc import Callable
from functools import wraps
from typing import TypeVar, cast

from shardir.frontend.pytree import tree
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.tracing.operands import convert
from shardir.frontend.tracing.tracer import Tracer

Function = TypeVar("Function", bound=UserFunction)


def strip_weak_type(x: Tracer) -> Tracer:
    """Return `x`, an array of a trace or of none, as an array that is not weakly typed."""
    return convert(x, x.value.type.dtype) if isinstance(x, Tracer) else x.astype(x.dtype)


def strip_weak_types(fun: Function) -> Function:
    """Return `fun` with results that are not weakly typed."""
    return _apply_to_results(fun, strip_weak_type)


def strip_weak_types_of_arrays(fun: Function) -> Function:
    """Return `fun` with results of which only scalars may be weakly typed.

    JAX combines the operands of these functions with constants that are weakly typed only beside
    weakly typed scalars.
    """
    return _apply_to_results(fun, lambda x: strip_weak_type(x) if x.ndim else x)


def _apply_to_results(fun: Function, convert_result: Callable[[Tracer], Tracer]) -> Function:
    @wraps(fun)
    def call_and_convert(*args: PyTree, **options: PyTree) -> PyTree:
        def convert_leaf(x: PyTree) -> PyTree:
            if not getattr(x, "weak_type", False):
                return x
            return convert_result(x)

        return tree.map(convert_leaf, fun(*args, **options))

    return cast(Function, call_and_convert)
