"""Transfers of arrays to devices and to the host."""

from functools import update_wrapper
from typing import Any

import numpy as np

from shardir.backends.cpu.native.runtime.callables import quick_class
from shardir.backends.storage import Storage
from shardir.frontend import tree
from shardir.frontend.abstract_mesh import is_abstract, nothing_runs
from shardir.frontend.amounts import flag_of
from shardir.frontend.annotations import constrain
from shardir.frontend.array import Array, placed, uncommitted
from shardir.frontend.config import uneven_mode
from shardir.frontend.errors import ShardingError
from shardir.frontend.executing import wait_quickly
from shardir.frontend.gathering import check_same, moved
from shardir.frontend.locations import point
from shardir.frontend.operands import abstract_of, as_tracer, is_number, to_numpy
from shardir.frontend.parameters import labels_of
from shardir.frontend.processes import here
from shardir.frontend.shardings import Sharding
from shardir.frontend.signature import signature_of
from shardir.frontend.taking import taken
from shardir.frontend.trace import current
from shardir.frontend.tracer import Tracer
from shardir.frontend.wishes import granted, spread_wishes


def device_put(
    x: Any, device: Any = None, *, donate: bool = False, uneven: str | None = None
) -> Any:
    """Place a pytree of arrays, NumPy arrays and numbers on devices.

    `device` is a `Sharding`, a `Device`, or a pytree prefix of these: an entry applies to the whole
    subtree below it. A `PartitionSpec` refers to the mesh of the enclosing `with mesh:`. The
    resulting arrays are committed. Where the entry is `None`, arrays stay where they are, and all
    other leaves go to the default device uncommitted. Inside of a trace this is
    `with_sharding_constraint`. `donate` releases the given arrays.

    The elements do not change. Raises `IndivisibleError` when the sharding does not divide a
    dimension evenly, unless `uneven` (or the setting of this name) is `"pad"`: then the last
    devices hold fewer elements than the others, or none.
    """
    pads = uneven_mode(uneven, "device_put") == "pad"
    donate = flag_of("donate of device_put", donate)
    leaves, structure = tree.flatten(x)
    word = "the device of device_put"
    targets = [granted(request, word) for request in spread_wishes(device, x, word)]
    if current() is not None:
        moved: list[Any] = [
            as_tracer(leaf) if to is None else constrain(as_tracer(leaf), to)
            for leaf, to in zip(leaves, targets, strict=True)
        ]
        return tree.unflatten(structure, moved)
    moved = []
    for i, (leaf, to) in enumerate(zip(leaves, targets, strict=True)):
        try:
            moved.append(_put(leaf, to, pads))
        except ShardingError as error:
            which = f"{labels_of('x', x)[i]} of device_put: " if len(leaves) > 1 else ""
            raise type(error)(point(f"{which}{error}")) from None
    if donate:
        for leaf, result in zip(leaves, moved, strict=True):
            if isinstance(leaf, Array) and leaf is not result:
                leaf.give_up("has been donated to device_put")
    return tree.unflatten(structure, moved)


def _put(leaf: Any, to: Sharding | None, pads: bool) -> Array:
    if isinstance(leaf, Tracer):
        leaf.check(None)
    if not isinstance(leaf, Array):
        abstract = abstract_of(leaf, "x of device_put")
        numbers = to_numpy(leaf)
        if to is None:
            return uncommitted(taken(numbers), abstract)
        _check(to, numbers.shape, pads)
        check_same(numbers, to)
        return placed(taken(numbers), abstract, to)
    if to is None or leaf.signature.sharding == to:
        return leaf
    shape = leaf.shape
    same = leaf.sharding.device_assignment == to.device_assignment
    if same and leaf.sharding.is_equivalent_to(to, len(shape)):
        # The placement is the same already, whether its dimensions divide or not.
        return Array(signature_of(leaf.abstract, to), to, leaf.contents())
    _check(to, shape, pads)
    if leaf.signature.sharding is None:
        check_same(leaf.whole(), to)
    elif here().count > 1:
        parts = moved(leaf.parts, leaf.sharding, to, leaf.type)
        return Array(signature_of(leaf.abstract, to), to, parts)
    held = leaf.contents()
    if not isinstance(held, Storage) or held.shape != shape:
        held = Storage.of(leaf.whole())
    return placed(held, leaf.abstract, to)


def _check(to: Sharding, shape: tuple[int, ...], pads: bool) -> None:
    """Raise `IndivisibleError` for an uneven sharding unless `pads`, and `DeviceError` for an
    abstract one."""
    if is_abstract(to.device_assignment):
        raise nothing_runs("device_put cannot place an array on", to.num_devices)
    if not pads:
        to.check_divides(shape, 'replicate it, or pass uneven="pad"')


def device_get(x: Any) -> Any:
    """Return a pytree of arrays as one of NumPy arrays; random keys and Python numbers are
    unchanged."""
    return tree.map(lambda leaf: leaf if _is_key(leaf) or is_number(leaf) else np.asarray(leaf), x)


def copy_to_host_async(x: Any) -> Any:
    """Start copying all arrays in `x` to the host, and return `x`."""
    for leaf in tree.leaves(x):
        tell = getattr(leaf, "copy_to_host_async", None)
        if tell is not None:
            tell()
    return x


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, Array) and leaf.type.dtype == "key"


@quick_class
class _Waiting:
    """Vectorcall wrapper of `block_until_ready`, with a native implementation for CPU arrays."""

    def __init__(self, fun: Any) -> None:
        update_wrapper(self, fun)
        self._quick = False

    def __call__(self, x: Any) -> Any:
        if not self._quick:
            self._quick = wait_quickly(self, Array)
        # Results are complete when a call returns; deleted arrays must raise an error.
        for leaf in tree.leaves(x):
            if isinstance(leaf, Array):
                leaf.block_until_ready()
        return x

    def __reduce__(self) -> str:
        return "block_until_ready"


@_Waiting
def block_until_ready(x: Any) -> Any:
    """Return `x` after all arrays in it are computed."""


def effects_barrier() -> None:
    """Do nothing: the effects of a program, such as `debug.print`, are complete when its call
    returns."""
