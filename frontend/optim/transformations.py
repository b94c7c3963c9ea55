"""Gradient transformations and their composition."""

from collections.abc import Callable
from typing import NamedTuple

from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.call_signatures import call_user_function, with_constructor_errors
from shardir.frontend.errors import ArgumentError
from shardir.frontend.numpy.creation import array_conversion
from shardir.frontend.optim.argument_checks import as_array_leaves, check_numbers
from shardir.frontend.pytree import tree
from shardir.frontend.pytree.tree_checks import check_function
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.quoting import brief
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.tracer import Tracer


@with_constructor_errors
class Transformation(NamedTuple):
    """`init(params)` returns a state; `update(updates, state, params=None)` (updates, state)."""

    init: UserFunction
    """Return the first state: `init(params)`."""
    update: Callable[..., tuple[PyTree, PyTree]]
    """Return the new updates and the new state: `update(updates, state, params=None)`."""


class EmptyState(NamedTuple):
    """The state of a stateless transformation."""


@with_argument_errors
def stateless(fun: Callable[[PyTree, PyTree], PyTree]) -> Transformation:
    """Return the transformation that replaces updates by `fun(updates, params)`."""
    check_function("stateless", fun)

    def update(updates: PyTree, state: PyTree, params: PyTree = None) -> tuple[PyTree, PyTree]:
        given = as_array_leaves("updates", updates), params
        return call_user_function(fun, "the function of stateless", given), state

    return Transformation(lambda params: EmptyState(), update)


@with_argument_errors
def identity() -> Transformation:
    """Return the transformation that returns updates unchanged."""
    return stateless(lambda updates, params: updates)


@with_argument_errors
def chain(*parts: Transformation) -> Transformation:
    """Return a transformation that applies `parts` in sequence; its state is a tuple of their
    states.
    """
    for part in parts:
        if not (hasattr(part, "init") and hasattr(part, "update")):
            raise ArgumentError(with_location(f"chain takes transformations, got {brief(part)}"))

    def init(params: PyTree) -> tuple[PyTree, ...]:
        return tuple(part.init(params) for part in parts)

    def update(updates: PyTree, state: PyTree, params: PyTree = None) -> tuple[PyTree, PyTree]:
        if not isinstance(state, tuple) or len(state) != len(parts):
            raise ArgumentError(
                with_location(
                    f"a chain of {len(parts)} transformations got {_describe_state(state)}; make "
                    "one with its own init"
                )
            )
        states = []
        for part, part_state in zip(parts, state, strict=True):
            updates, next_state = part.update(updates, part_state, params)
            states.append(next_state)
        return updates, tuple(states)

    return Transformation(init, update)


@with_argument_errors
def apply_updates(params: PyTree, updates: PyTree) -> PyTree:
    """Add the updates to the parameters; the element types of the parameters are kept."""

    def apply_update(param: ArrayLike, update: ArrayLike) -> Tracer:
        check_numbers("apply_updates", param=param, update=update)
        before = array_conversion.asarray(param)
        return (before + array_conversion.asarray(update)).astype(before.dtype)

    return tree.map(apply_update, params, updates)


def require_params(what: str, params: PyTree) -> PyTree:
    """Return the parameters; raise `ArgumentError` if `update` was called without them."""
    if params is None:
        raise ArgumentError(
            with_location(f"{what} needs the parameters too; call update(gradients, state, params)")
        )
    return as_array_leaves("params", params)


def _describe_state(state: PyTree) -> str:
    return f"a state of {len(state)}" if isinstance(state, tuple) else f"the state {state!r}"
