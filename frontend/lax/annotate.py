"""Telling the compiler how a value is to be spread."""

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
    """The same values, spread as `shardings` says from here on.

    `x` may be a container; `shardings` is one sharding for all of it, or a container of shardings
    that may stop early: an entry is for everything below it, `None` leaves the choice to the
    compiler. A `PartitionSpec` refers to the mesh of the `with mesh:` around the call. Dimensions
    need not divide inside `jit`; outside of `jit` this is `device_put` of arrays that nobody has
    placed, or that are on the same devices. A sharding on an `AbstractMesh` is on the mesh of the
    arrays then, which has the same axes. Raises `ArgumentError` for what is no sharding, or
    containers that do not fit, and `IncompatibleDevicesError` for arrays elsewhere.
    """
    word = "with_sharding_constraint"
    leaves, structure = tree.flatten(x)
    try:
        wishes = spread_wishes(shardings, x, word)
    except ArgumentError as error:
        raise ArgumentError(point(str(error))) from None
    wanted = [granted(wish, word) for wish in wishes]
    pairs = zip(leaves, wanted, strict=True)
    if current() is None:
        placed = [leaf if to is None else _moved(leaf, to) for leaf, to in pairs]
    else:
        placed = [_held(as_tracer(leaf), to) for leaf, to in pairs]
    return tree.unflatten(structure, placed)


def _moved(leaf: Any, to: Sharding) -> Any:
    where = leaf.sharding if isinstance(leaf, Array) and leaf.committed else None
    if isinstance(to, NamedSharding) and isinstance(to.mesh, AbstractMesh):
        if not isinstance(where, NamedSharding):
            raise ArgumentError(
                point(
                    f"with_sharding_constraint has {to}, which is on no devices; the array must "
                    "be on a mesh, by a NamedSharding, or the constraint inside of jit"
                )
            )
        ((to, _),) = grounded([(to, len(leaf.shape))], [where])
    if where is not None:
        check_same_devices([("the array", where), ("its sharding constraint", to)])
    return device_put(leaf, to)


def _held(value: Tracer, to: Sharding | None) -> Tracer:
    if to is None:
        return value
    try:
        return constrain(value, to)
    except ShardingError as error:
        raise type(error)(point(str(error))) from None


def composite(decomposition: Callable[..., Any], name: str, version: int = 0) -> Callable[..., Any]:
    """`decomposition` as a function that JAX shows to compilers under a name of its own.

    It is part of the program here as any other function is; attributes are given by keyword.
    """
    if not callable(decomposition):
        raise ArgumentError(point(f"composite takes a function, got {brief(decomposition)}"))
    return wraps(decomposition)(partial(decomposition))
