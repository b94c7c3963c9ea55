"""What every process has, for all of them: numbers gathered or told to everybody.

Under the names of `jax.experimental.multihost_utils`. All are called by every process in the same
order; with one process they need nobody.
"""

import pickle
from typing import Any

import numpy as np

from shardir.frontend import tree
from shardir.frontend.array import Array
from shardir.frontend.assembling import make_array_from_process_local_data
from shardir.frontend.errors import DistributedError
from shardir.frontend.locations import point
from shardir.frontend.mesh import Mesh
from shardir.frontend.prefix import spread
from shardir.frontend.processes import here
from shardir.frontend.shardings import NamedSharding
from shardir.frontend.sharing import barrier, gather_to_all
from shardir.frontend.wishes import is_wish


def process_allgather(in_tree: Any, tiled: bool = False) -> Any:
    """Containers of arrays as NumPy arrays of what all processes have, in every process.

    What each process has for itself is stacked along a new first dimension, or with `tiled` put
    one after the other along the first. Arrays spread over processes become whole, as they are;
    without `tiled` they raise `DistributedError`.
    """
    return tree.map(lambda leaf: _gathered(leaf, tiled), in_tree)


def _gathered(leaf: Any, tiled: bool) -> Any:
    if isinstance(leaf, Array) and not leaf.is_fully_addressable:
        if not tiled:
            raise DistributedError(
                point(
                    "process_allgather would stack an array that is spread over processes, which "
                    "is one array; pass tiled=True"
                )
            )
        return gather_to_all(leaf)
    parts = _of_all(np.asarray(leaf), "process_allgather")
    if not tiled:
        return np.stack(parts)
    return np.concatenate([np.atleast_1d(part) for part in parts])


def broadcast_one_to_all(in_tree: Any, is_source: bool | None = None) -> Any:
    """The arrays of the process that says `is_source` (by default the first), in every process."""
    source = here().index == 0 if is_source is None else is_source
    sources = _of_all(source, "broadcast_one_to_all")
    if sum(sources) != 1:
        raise DistributedError(
            point(f"broadcast_one_to_all has {sum(sources)} sources; one process is the source")
        )
    at = sources.index(True)
    return tree.map(lambda x: _of_all(np.asarray(x), "broadcast_one_to_all")[at], in_tree)


def sync_global_devices(name: str) -> None:
    """Wait until every process has come here; `name` is for the message if one does not."""
    barrier(name)


def host_local_array_to_global_array(local_inputs: Any, global_mesh: Mesh, pspecs: Any) -> Any:
    """Arrays of which `local_inputs` are what each process has, spread over a mesh as specs say."""
    leaves, structure = tree.flatten(local_inputs)
    specs = spread(pspecs, local_inputs, is_wish, "the specs of host_local_array_to_global_array")
    made = [
        make_array_from_process_local_data(NamedSharding(global_mesh, spec), leaf)
        for leaf, spec in zip(leaves, specs, strict=True)
    ]
    return tree.unflatten(structure, made)


def _of_all(value: Any, word: str) -> list[Any]:
    link = here().link
    if link is None:
        return [value]
    return [pickle.loads(given) for given in link.gather(pickle.dumps(value), word)]
