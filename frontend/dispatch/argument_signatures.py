"""Checks of the arguments of a function that is to be traced, and their signatures and
shardings."""

from collections.abc import Callable
from inspect import isgeneratorfunction
from typing import Any

from shardir.frontend.arrays.signature import ArraySignature
from shardir.frontend.dispatch.eager_call import ArgumentLeaf, is_array_like, signature_of_leaf
from shardir.frontend.errors import ArgumentError, NotAnArrayError, ShardingError
from shardir.frontend.quoting import brief, brief_with_type
from shardir.frontend.shardings.sharding import Sharding
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.parameters import Parameters


def check_traceable(fun: Any, word: str) -> Callable[..., Any]:
    """Return `fun`, a function that can be traced; raises `ArgumentError` for anything else."""
    if not callable(fun):
        raise ArgumentError(with_location(f"{word} takes a function, got {brief(fun)}"))
    if isinstance(fun, staticmethod):
        raise ArgumentError(
            with_location(
                f"{word} takes a function, got a staticmethod; write @staticmethod above @{word}"
            )
        )
    if isgeneratorfunction(fun):
        raise ArgumentError(
            with_location(
                f"{word} takes a function that returns its results, and {fun.__name__} yields "
                "them; return a tuple of them"
            )
        )
    known: Callable[..., Any] = fun
    return known


def signatures_of(
    parameters: Parameters, leaves: list[Any], dynamic: Any
) -> tuple[ArraySignature, ...]:
    """Return the signatures of the leaves of the `dynamic` arguments.

    Raises `NotAnArrayError` that names the invalid argument.
    """
    try:
        return tuple([signature_of_leaf(leaf) for leaf in leaves])
    except NotAnArrayError:
        # Check each leaf again, now with its name.
        args, options = dynamic
        labels = parameters.labels(args, options)
        for leaf, label in zip(leaves, labels, strict=True):
            check_argument_leaf(parameters, leaf, label)
        raise


def check_argument_leaf(parameters: Parameters, leaf: Any, label: str) -> None:
    """Raise `NotAnArrayError` unless the argument named `label` can be traced."""
    name = parameters.name
    if not is_array_like(leaf):
        raise NotAnArrayError(
            with_location(
                f"argument {label} of {name} is {brief_with_type(leaf)}, which "
                "is no array; make it static (static_argnums, static_argnames), or register "
                "its class as a container (shardir.tree)"
            )
        )
    signature_of_leaf(leaf, f"argument {label} of {name}")


def resolve_argument_sharding(leaf: ArgumentLeaf, wanted: Sharding | None) -> Sharding | None:
    """Return the sharding of an argument: its own, which must be equivalent to the requested
    one."""
    given, rank = leaf.signature.sharding, leaf.signature.abstract.type.rank
    if wanted is None or given is None:
        return given or wanted
    if given.device_assignment != wanted.device_assignment or not given.is_equivalent_to(
        wanted, rank
    ):
        raise ShardingError(
            with_location(
                f"{leaf.description} is placed as {given}, and in_shardings requests {wanted}; "
                "move it there with device_put, or set its entry of in_shardings to None"
            )
        )
    return given
