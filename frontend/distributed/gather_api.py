"""Public functions that gather distributed arrays and make them from process-local data."""

from collections.abc import Callable, Sequence

import numpy as np

from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.arrays.array import Array
from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.distributed.array_assembly import (
    make_array_from_callback,
    make_array_from_process_local_data,
)
from shardir.frontend.distributed.processes import process_group
from shardir.frontend.distributed.shard_exchange import gather_elements
from shardir.frontend.errors import DistributedError
from shardir.frontend.pytree import tree
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.shardings.sharding import Index, Sharding
from shardir.frontend.source_locations import with_location


@with_argument_errors
def gather_to_all(x: object) -> PyTree:
    """Gather a pytree of arrays and return it as global NumPy arrays, in every process.

    Every process must call it. Elements that are in local memory are not sent. An uncommitted array
    is local to each process and is returned as it is.
    """
    return tree.map(lambda leaf: _gather_leaf(leaf, None), x)


@with_argument_errors
def gather_to_root(x: object, root: int = 0) -> PyTree:
    """Gather as `gather_to_all` does, in the process `root` alone; the other processes get `None`.

    Every process must call it, as the `gather` of MPI. Raises `DistributedError` when there is no
    such process.
    """
    if not isinstance(root, int) or not 0 <= root < process_group().count:
        raise DistributedError(
            with_location(
                f"gather_to_root got the root {root!r}; processes are 0 to "
                f"{process_group().count - 1}"
            )
        )
    result = tree.map(lambda leaf: _gather_leaf(leaf, root), x)
    return result if process_group().index == root else None


def _gather_leaf(leaf: ArrayLike, root: int | None) -> object:
    if not isinstance(leaf, Array):
        return np.asarray(leaf) if root in (None, process_group().index) else None
    if not leaf.committed:
        return np.asarray(leaf) if root in (None, process_group().index) else None
    whole = gather_elements(leaf.device_shards, leaf.sharding, leaf.type, root)
    return whole if root in (None, process_group().index) else None


@with_argument_errors
def from_process_local(
    data: ArrayLike, sharding: Sharding, global_shape: Sequence[int] | None = None
) -> Array:
    """Return the array whose shards on the devices of this process are `data`.

    This is `make_array_from_process_local_data` with the argument order of `device_put`.
    """
    result: Array = make_array_from_process_local_data(sharding, data, global_shape)
    return result


@with_argument_errors
def from_callback(
    shape: Sequence[int],
    sharding: Sharding,
    data: Callable[[Index], object],
    *,
    dtype: object = None,
) -> Array:
    """Return the array of `shape` whose shard at an index is `data(index)`, called for local shards
    only."""
    return make_array_from_callback(shape, sharding, data, dtype=dtype)


@with_argument_errors
def barrier(name: str = "") -> None:
    """Wait until every process has reached this call; `name` appears in the error if one does
    not."""
    link = process_group().link
    if link is not None:
        link.gather(b"", f"the barrier {name!r}" if name else "a barrier")
