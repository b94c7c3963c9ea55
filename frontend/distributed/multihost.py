"""Collective operations on host values, under the names of `jax.experimental.multihost_utils`.

Every process must call them in the same order; with one process they need no communication.
"""

import pickle

import numpy as np

from shardir.backends.base import Storage
from shardir.frontend.argument_checks import check_flag
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.arrays.abstract_value import AbstractValue
from shardir.frontend.arrays.array import Array, make_uncommitted_array
from shardir.frontend.arrays.device_transfer import device_put
from shardir.frontend.arrays.shard_buffers import Buffer
from shardir.frontend.distributed.array_assembly import make_array_from_process_local_data
from shardir.frontend.distributed.gather_api import barrier, gather_to_all
from shardir.frontend.distributed.processes import process_group
from shardir.frontend.distributed.shard_exchange import index_box
from shardir.frontend.errors import DistributedError
from shardir.frontend.pytree import tree
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.shardings.mesh import Mesh
from shardir.frontend.shardings.requested_sharding import broadcast_sharding_requests
from shardir.frontend.shardings.sharding import NamedSharding
from shardir.frontend.source_locations import with_location
from shardir.ir.types import TensorType


@with_argument_errors
def process_allgather(in_tree: PyTree, tiled: bool = False) -> PyTree:
    """Gather a pytree of arrays from all processes and return it as NumPy arrays, in every process.

    Values that are local to each process are stacked along a new first dimension, or with `tiled`
    concatenated along the first. Distributed arrays are gathered into global ones; without `tiled`
    they raise `DistributedError`.
    """
    return tree.map(lambda leaf: _allgather_leaf(leaf, tiled), in_tree)


def _allgather_leaf(leaf: object, tiled: bool) -> PyTree:
    if isinstance(leaf, Array) and not leaf.is_fully_addressable:
        if not tiled:
            raise DistributedError(
                with_location(
                    "process_allgather cannot stack an array that is sharded over processes; "
                    "pass tiled=True"
                )
            )
        return gather_to_all(leaf)
    parts = gather_objects(np.asarray(leaf), "process_allgather")
    if not tiled:
        return np.stack(parts)
    return np.concatenate([np.atleast_1d(part) for part in parts])


@with_argument_errors
def broadcast_one_to_all(in_tree: object, is_source: bool | None = None) -> PyTree:
    """Return the pytree of the process with `is_source` (by default the first), in every
    process."""
    flag = "is_source of broadcast_one_to_all"
    source = process_group().index == 0 if is_source is None else check_flag(flag, is_source)
    sources = gather_objects(source, "broadcast_one_to_all")
    if sum(sources) != 1:
        raise DistributedError(
            with_location(
                f"broadcast_one_to_all has {sum(sources)} sources; one process is the source"
            )
        )
    at = sources.index(True)
    return tree.map(lambda x: gather_objects(np.asarray(x), "broadcast_one_to_all")[at], in_tree)


@with_argument_errors
def sync_global_devices(name: str) -> None:
    """Wait until every process has reached this call; `name` appears in the error if one does
    not."""
    barrier(name)


@with_argument_errors
def host_local_array_to_global_array(
    local_inputs: object, global_mesh: Mesh, pspecs: object
) -> PyTree:
    """Return global arrays, sharded on a mesh by the specs, from the data of each process."""
    leaves, structure = tree.flatten(local_inputs)
    specs = broadcast_sharding_requests(
        pspecs, local_inputs, "the specs of host_local_array_to_global_array"
    )
    result = [
        make_array_from_process_local_data(NamedSharding(global_mesh, spec), leaf)
        for leaf, spec in zip(leaves, specs, strict=True)
    ]
    return tree.unflatten(structure, result)


@with_argument_errors
def global_array_to_host_local_array(
    global_inputs: object, global_mesh: Mesh, pspecs: object
) -> PyTree:
    """Return the data of this process's devices for arrays sharded on a mesh by the specs.

    The result has one local array for each of `global_inputs`. Raises `DistributedError` when the
    mesh has no device of this process.
    """
    leaves, structure = tree.flatten(global_inputs)
    word = "the specs of global_array_to_host_local_array"
    specs = broadcast_sharding_requests(pspecs, global_inputs, word)
    result = [
        _assemble_local(device_put(leaf, NamedSharding(global_mesh, spec)), global_mesh)
        for leaf, spec in zip(leaves, specs, strict=True)
    ]
    return tree.unflatten(structure, result)


def _assemble_local(array: Array, mesh: Mesh) -> Array:
    """Return the local shards of an array, assembled to one local array."""
    shape, parts = array.shape, array.addressable_shards
    if not parts:
        raise DistributedError(
            with_location(
                f"no device of {mesh} belongs to process {process_group().index}, which has no "
                "shard"
            )
        )
    boxes = [index_box(part.index, shape) for part in parts]
    corners = list(zip(*boxes, strict=True)) if shape else []
    low = [min(start for start, _ in each) for each in corners]
    size = [max(stop for _, stop in each) - at for each, at in zip(corners, low, strict=True)]
    whole = np.empty(size, array.type.numpy)
    for part, box in zip(parts, boxes, strict=True):
        at = tuple(slice(a - first, b - first) for (a, b), first in zip(box, low, strict=True))
        whole[at] = part.data.to_numpy_view()
    return make_uncommitted_array(
        Storage.of(whole), AbstractValue(TensorType(tuple(size), array.type.dtype))
    )


@with_argument_errors
def assert_equal(in_tree: object, fail_message: str = "") -> None:
    """Raise `AssertionError` in every process when one has other elements than the first.

    `in_tree` is a pytree of arrays or numbers that are local to each process; of a distributed
    array each process compares the shard of its first device.
    """
    leaves, structure = tree.flatten(in_tree)
    names = ["/".join(map(str, path)) for path in structure.paths()]
    mine = [_compared_elements(leaf) for leaf in leaves]
    numbers = [(str(x.dtype), x.shape, x.tobytes()) for x in mine]
    rows = gather_objects((names, numbers), "assert_equal")
    for process, row in enumerate(rows):
        if row == rows[0]:
            continue
        pairs = zip(row[0], row[1], rows[0][1], strict=False)
        name = next((name for name, one, first in pairs if one != first), "")
        what = f"{name!r} is" if name and row[0] == rows[0][0] else "the values are"
        message = f"{what} not the same in process {process} as in process 0"
        raise AssertionError(
            with_location(f"{fail_message}: {message}" if fail_message else message)
        )


def _compared_elements(leaf: object) -> Buffer:
    """Return the elements of a leaf that are compared."""
    if isinstance(leaf, Array):
        spread_out = not leaf.is_fully_addressable
        return (
            leaf.addressable_shards[0].data.to_numpy_view() if spread_out else leaf.to_numpy_view()
        )
    return np.asarray(leaf)


def gather_objects(value: object, word: str) -> list[PyTree]:
    link = process_group().link
    if link is None:
        return [value]
    return [pickle.loads(given) for given in link.gather(pickle.dumps(value), word)]
