"""Sharding constraints and composite functions."""

from collections.abc import Callable
from functools import partial, wraps
from typing import Any

from shardir.frontend import tree
from shardir.frontend.abstract_mesh import AbstractMesh
from shardir.frontend.annotations import constrain
from shardir.frontend.array import Array
from shardir.frontend.common_mesh import check_same_devices, grounded
from shardir.frontend.errors import ArgumentError, ShardingError
from shardir.frontend.locations import point
from shardir.frontend.operands import as_tracer
from shardir.frontend.placing import device_put
from shardir.frontend.quoting import brief
from shardir.frontend.shardings import NamedSharding, Sharding
from shardir.frontend.trace import current
from shardir.frontend.tracer import Tracer
from shardir.frontend.wishes import granted, spread_wishes


def with_sharding_constraint(x: Any, shardings: Any) -> Any:
    """Return the same values with the sharding that `shardings` states.

    `x` may be a container; `shardings` is one sharding for all leaves, or a prefix of the
    container: an entry applies to all leaves below it, and `None` lets the compiler choose. A
    `PartitionSpec` refers to the mesh of the surrounding `with mesh:`. Inside of `jit`, dimensions
    need not be divisible; outside of `jit` this is `device_put` of arrays that are uncommitted or
    on the same devices. A sharding on an `AbstractMesh` is then resolved to the mesh of the arrays,
    which has the same axes. Raise `ArgumentError` for an object that is not a sharding, or
    containers that do not match, and `IncompatibleDevicesError` for arrays on other devices.
    """
    label = "with_sharding_constraint"
    leaves, structure = tree.flatten(x)
    try:
        requested = spread_wishes(shardings, x, label)
    except ArgumentError as error:
        raise ArgumentError(point(str(error))) from None
    resolved = [granted(request, label) for request in requested]
    pairs = zip(leaves, resolved, strict=True)
    if current() is None:
        placed = [leaf if to is None else _moved(leaf, to) for leaf, to in pairs]
    else:
        placed = [_held(as_tracer(leaf), to) for leaf, to in pairs]
    return tree.unflatten(structure, placed)


def _moved(leaf: Any, to: Sharding) -> Any:
    current_sharding = leaf.sharding if isinstance(leaf, Array) and leaf.committed else None
    if isinstance(to, NamedSharding) and isinstance(to.mesh, AbstractMesh):
        if not isinstance(current_sharding, NamedSharding):
            raise ArgumentError(
                point(
                    f"with_sharding_constraint has {to}, which has no devices; the array must "
                    "be on a mesh, by a NamedSharding, or the constraint inside of jit"
                )
            )
        ((to, _),) = grounded([(to, len(leaf.shape))], [current_sharding])
    if current_sharding is not None:
        check_same_devices([("the array", current_sharding), ("its sharding constraint", to)])
    return device_put(leaf, to)


def _held(value: Tracer, to: Sharding | None) -> Tracer:
    if to is None:
        return value
    try:
        return constrain(value, to)
    except ShardingError as error:
        raise type(error)(point(str(error))) from None


def composite(decomposition: Callable[..., Any], name: str, version: int = 0) -> Callable[..., Any]:
    """Return `decomposition` as a function that JAX shows to compilers as a named composite.

    In shardir it is traced like every other function; attributes are passed by keyword.
    """
    if not callable(decomposition):
        raise ArgumentError(point(f"composite takes a function, got {brief(decomposition)}"))
    return wraps(decomposition)(partial(decomposition))
