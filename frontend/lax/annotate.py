"""Telling the compiler how a value is to be spread."""

from typing import Any

from shardir.frontend import tree
from shardir.frontend.annotations import constrain
from shardir.frontend.errors import ArgumentError, ShardingError
from shardir.frontend.locations import point
from shardir.frontend.operands import as_tracer
from shardir.frontend.placing import device_put
from shardir.frontend.prefix import spread
from shardir.frontend.shardings import Sharding
from shardir.frontend.trace import current
from shardir.frontend.tracer import Tracer
from shardir.frontend.wishes import granted, is_wish


def with_sharding_constraint(x: Any, shardings: Any) -> Any:
    """The same values, spread as `shardings` says from here on.

    `x` may be a container; `shardings` is one sharding for all of it, or a container of shardings
    that may stop early: an entry is for everything below it, `None` leaves the choice to the
    compiler. A `PartitionSpec` refers to the mesh of the `with mesh:` around the call. Dimensions
    need not divide inside `jit`; outside of `jit` this is `device_put`. Raises `ArgumentError` for
    what is no sharding, or containers that do not fit.
    """
    word = "with_sharding_constraint"
    leaves, structure = tree.flatten(x)
    try:
        wishes = spread(shardings, x, is_wish, word)
    except ArgumentError as error:
        raise ArgumentError(point(str(error))) from None
    wanted = [granted(wish, word) for wish in wishes]
    pairs = zip(leaves, wanted, strict=True)
    if current() is None:
        placed = [leaf if to is None else device_put(leaf, to) for leaf, to in pairs]
    else:
        placed = [_held(as_tracer(leaf), to) for leaf, to in pairs]
    return tree.unflatten(structure, placed)


def _held(value: Tracer, to: Sharding | None) -> Tracer:
    if to is None:
        return value
    try:
        return constrain(value, to)
    except ShardingError as error:
        raise type(error)(point(str(error))) from None
