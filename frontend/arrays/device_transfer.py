"""Transfers of arrays to devices and to the host."""

import numpy as np

from shardir.backends.native import native
from shardir.backends.storage import Storage
from shardir.frontend.argument_checks import check_flag
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.arrays.array import Array, make_committed_array, make_uncommitted_array
from shardir.frontend.arrays.array_import import import_numpy
from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.arrays.numpy_conversion import abstract_of, is_number, to_numpy
from shardir.frontend.arrays.signature import signature_of
from shardir.frontend.config import resolve_uneven_mode
from shardir.frontend.distributed.processes import process_group
from shardir.frontend.distributed.shard_exchange import (
    check_equal_across_processes,
    reshard_buffers,
)
from shardir.frontend.errors import ArgumentError, ShardingError
from shardir.frontend.pytree import tree
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.shardings.devices import abstract_device_error, is_abstract_assignment
from shardir.frontend.shardings.manual_axes import is_in_manual_region
from shardir.frontend.shardings.requested_sharding import (
    broadcast_sharding_requests,
    resolve_sharding,
)
from shardir.frontend.shardings.sharding import (
    Sharding,
    SingleDeviceSharding,
)
from shardir.frontend.shardings.sharding_checks import check_holds_partial_sums
from shardir.frontend.shardings.traced_constraints import constrain
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracebacks import traceback_boundary
from shardir.frontend.tracing.operands import as_tracer
from shardir.frontend.tracing.parameters import leaf_labels
from shardir.frontend.tracing.trace import current_trace, require_trace
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.dtypes import KEYS


@traceback_boundary
def device_put(
    x: object,
    device: object = None,
    *,
    src: object = None,
    donate: bool = False,
    may_alias: bool | None = None,
    uneven: str | None = None,
) -> PyTree:
    """Place a pytree of arrays, NumPy arrays and numbers on devices.

    `device` is a `Sharding`, a `Device`, or a pytree prefix of these: an entry applies to the whole
    subtree below it. A `PartitionSpec` refers to the mesh of the enclosing `with mesh:`. The
    resulting arrays are committed. Where the entry is `None`, arrays stay where they are, and all
    other leaves go to the default device uncommitted. Inside of a trace this is
    `with_sharding_constraint`; a `Device` has no effect in a `shard_map` inside of `jit`. `donate`
    releases the given arrays; it excludes `may_alias`, which has no other effect, because arrays
    are immutable. `src` states where `x` is, and has no effect, because the arrays state it.

    The elements do not change. Raises `IndivisibleError` when the sharding does not divide a
    dimension evenly, unless `uneven` (or the setting of this name) is `"pad"`: then the last
    devices hold fewer elements than the others, or none.
    """
    pads = resolve_uneven_mode(uneven, "device_put") == "pad"
    donate = check_flag("donate of device_put", donate)
    if donate and may_alias:
        raise ArgumentError(
            with_location("device_put with donate=True releases x, so may_alias cannot be True")
        )
    leaves, structure = tree.flatten(x)
    word = "the device of device_put"
    targets = [
        resolve_sharding(request, word) for request in broadcast_sharding_requests(device, x, word)
    ]
    if current_trace() is not None:
        moved: list[object] = [
            as_tracer(leaf) if to is None or _is_own_device(to) else constrain(as_tracer(leaf), to)
            for leaf, to in zip(leaves, targets, strict=True)
        ]
        return tree.unflatten(structure, moved)
    moved = []
    for i, (leaf, to) in enumerate(zip(leaves, targets, strict=True)):
        try:
            moved.append(_put_leaf(leaf, to, pads))
        except ShardingError as error:
            which = f"{leaf_labels('x', x)[i]} of device_put: " if len(leaves) > 1 else ""
            raise type(error)(with_location(f"{which}{error}")) from None
    if donate:
        for leaf, result in zip(leaves, moved, strict=True):
            if isinstance(leaf, Array) and leaf is not result:
                leaf.release("has been donated to device_put")
    return tree.unflatten(structure, moved)


def _is_own_device(to: Sharding) -> bool:
    """Return whether a device is requested where each device runs the function on its shard.

    As in JAX, the request has no effect inside of `jit`, and is an error outside of it.
    """
    if not isinstance(to, SingleDeviceSharding) or not is_in_manual_region():
        return False
    if require_trace("device_put").is_evaluated:
        (device,) = to.device_set
        raise ShardingError(
            with_location(
                f"device_put to {device} inside of shard_map, where each device of the mesh runs "
                "this line on its shard; omit the device"
            )
        )
    return True


def _put_leaf(leaf: ArrayLike, to: Sharding | None, pads: bool) -> Array:
    if isinstance(leaf, Tracer):
        leaf.check(None)
    if not isinstance(leaf, Array):
        abstract = abstract_of(leaf, "x of device_put")
        numbers = to_numpy(leaf)
        if to is None:
            return make_uncommitted_array(import_numpy(numbers), abstract)
        _check_target(to, numbers.shape, pads)
        check_equal_across_processes(numbers, to)
        return make_committed_array(import_numpy(numbers), abstract, to)
    if to is None or leaf.signature.sharding == to:
        return leaf
    shape = leaf.shape
    same = leaf.sharding.device_assignment == to.device_assignment
    if same and leaf.sharding.is_equivalent_to(to, len(shape)):
        # The placement is the same already, whether its dimensions divide or not.
        return Array(signature_of(leaf.abstract, to), to, leaf.checked_storage())
    _check_target(to, shape, pads)
    if leaf.signature.sharding is None:
        check_equal_across_processes(leaf.to_numpy_view(), to)
    elif process_group().count > 1:
        parts = reshard_buffers(leaf.device_shards, leaf.sharding, to, leaf.type)
        return Array(signature_of(leaf.abstract, to), to, parts)
    held = leaf.checked_storage()
    if not isinstance(held, Storage) or held.shape != shape:
        whole = leaf.read_total() if leaf.sharding.has_partial_sums else leaf.to_numpy_view()
        held = Storage.of(whole)
    return make_committed_array(held, leaf.abstract, to)


def _check_target(to: Sharding, shape: tuple[int, ...], pads: bool) -> None:
    """Raise `IndivisibleError` for an uneven sharding unless `pads`, `DeviceError` for an abstract
    one, and `ShardingError` for partial sums on devices of several processes."""
    if is_abstract_assignment(to.device_assignment):
        raise abstract_device_error("device_put cannot place an array on", to.num_devices)
    check_holds_partial_sums(to, "device_put cannot make an array")
    if not pads:
        to.check_divides(shape, 'replicate it, or pass uneven="pad"')


@traceback_boundary
def device_get(x: object) -> PyTree:
    """Return a pytree of arrays as one of NumPy arrays; random keys and Python numbers are
    unchanged."""
    return tree.map(
        lambda leaf: leaf if _is_key_array(leaf) or is_number(leaf) else np.asarray(leaf), x
    )


@with_argument_errors
def copy_to_host_async(x: object) -> PyTree:
    """Start copying all arrays in `x` to the host, and return `x`."""
    for leaf in tree.leaves(x):
        tell = getattr(leaf, "copy_to_host_async", None)
        if tell is not None:
            tell()
    return x


def _is_key_array(leaf: ArrayLike) -> bool:
    return isinstance(leaf, Array) and leaf.type.dtype in KEYS


@with_argument_errors
def block_until_ready(x: object) -> PyTree:
    """Return `x` after all arrays in it are computed."""
    # Results are complete when a call returns; deleted arrays must raise an error.
    if native is None or not native.is_ready(x):
        for leaf in tree.leaves(x):
            if isinstance(leaf, Array):
                leaf.block_until_ready()
    return x


@with_argument_errors
def effects_barrier() -> None:
    """Do nothing: the effects of a program, such as `debug.print`, are complete when its call
    returns."""
