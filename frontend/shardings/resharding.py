"""Requested shardings of results: `reshard`, and `out_sharding=` of public functions.

These are constraints for mesh axes of any type: the values do not change, and the compiler decides
on the communication. The semantics of `AxisType.Explicit` in JAX, where shardings are part of types
and a program without a sharding is refused, are not checked.
"""

from functools import wraps
from typing import Any, TypeVar

from shardir.frontend.arrays.device_transfer import device_put
from shardir.frontend.pytree import tree
from shardir.frontend.pytree.tree_checks import check_function
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.shardings.requested_sharding import (
    broadcast_sharding_requests,
    resolve_sharding,
)
from shardir.frontend.shardings.traced_constraints import constrain
from shardir.frontend.tracebacks import traceback_boundary
from shardir.frontend.tracing.operands import as_tracer
from shardir.frontend.tracing.trace import current_trace

Result = TypeVar("Result")


@traceback_boundary
def reshard(xs: Any, out_shardings: Any) -> Any:
    """Return `xs`, a pytree of arrays, with the shardings `out_shardings`.

    `out_shardings` is a `NamedSharding`, a `PartitionSpec` on the entered mesh, or a pytree prefix
    of these: an entry applies to the whole subtree below it. Inside of a trace dimensions need not
    divide; outside `reshard` is `device_put`. Raises `ArgumentError` for an object that is not a
    sharding, and `NoMeshError` for a `PartitionSpec` where no mesh is entered.
    """
    return _apply_shardings(xs, out_shardings, "out_shardings of reshard")


def apply_out_sharding(made: Result, out_sharding: Any) -> Result:
    """Return the result of a function with the sharding `out_sharding`, if that is not `None`."""
    if out_sharding is None:
        return made
    resharded: Result = _apply_shardings(made, out_sharding, "out_sharding")
    return resharded


def _apply_shardings(xs: Any, shardings: Any, word: str) -> Any:
    leaves, structure = tree.flatten(xs)
    wanted = [
        resolve_sharding(request, word)
        for request in broadcast_sharding_requests(shardings, xs, word)
    ]
    if current_trace() is None:
        return tree.unflatten(
            structure,
            [x if to is None else device_put(x, to) for x, to in zip(leaves, wanted, strict=True)],
        )
    held = [
        as_tracer(x) if to is None else constrain(as_tracer(x), to)
        for x, to in zip(leaves, wanted, strict=True)
    ]
    return tree.unflatten(structure, held)


def auto_axes(
    f: UserFunction | None = None, /, *, axes: Any = None, out_sharding: Any = None
) -> Any:
    """Return `f` with its results constrained to `out_sharding`; may be used as a decorator.

    In JAX the compiler chooses shardings along `axes` inside of `f`; shardir always does so.
    """
    if f is None:
        return lambda f: auto_axes(f, axes=axes, out_sharding=out_sharding)
    check_function("auto_axes", f)

    @wraps(f)
    def wrapper(*args: PyTree, out_sharding: Any = out_sharding, **options: PyTree) -> Any:
        return apply_out_sharding(f(*args, **options), out_sharding)

    return wrapper


def explicit_axes(
    f: UserFunction | None = None, /, *, axes: Any = None, in_sharding: Any = None
) -> Any:
    """Return `f` with its arguments constrained to `in_sharding`; may be used as a decorator.

    `in_sharding` is a pytree prefix of the tuple of positional arguments.
    """
    if f is None:
        return lambda f: explicit_axes(f, axes=axes, in_sharding=in_sharding)
    check_function("explicit_axes", f)

    @wraps(f)
    def wrapper(*args: PyTree, in_sharding: Any = in_sharding, **options: PyTree) -> Any:
        if in_sharding is not None:
            args = _apply_shardings(args, in_sharding, "in_sharding of explicit_axes")
        return f(*args, **options)

    return wrapper
