"""Exchange of shards between processes: gathering and resharding of arrays.

Every process derives from the sharding which process holds which shard, so no requests are sent:
each process sends the shards that others need from it. A shard that several processes hold is sent
by one of them, and never to a process that has it.
"""

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from itertools import product
from math import prod

import numpy as np

from shardir.frontend.arrays.shard_buffers import (
    Buffer,
    assemble_shards,
    pad_shard,
    without_padding,
)
from shardir.frontend.config import config
from shardir.frontend.distributed.processes import process_group
from shardir.frontend.errors import (
    ArgumentError,
    DistributedError,
    NotAddressableError,
    ShardingError,
)
from shardir.frontend.shardings.sharding import Index, Sharding
from shardir.frontend.source_locations import with_location
from shardir.ir.types import TensorType

Box = tuple[tuple[int, int], ...]
"""The range (start, stop) along each dimension."""


def index_box(index: Index, shape: tuple[int, ...]) -> Box:
    """Return the box of an index into an array of `shape`."""
    bounds = (part.indices(size) for part, size in zip(index, shape, strict=True))
    return tuple((start, stop) for start, stop, _ in bounds)


def full_box(shape: tuple[int, ...]) -> Box:
    """Return the box of a complete array."""
    return tuple((0, size) for size in shape)


def process_boxes(sharding: Sharding, shape: tuple[int, ...]) -> dict[int, list[Box]]:
    """Return for each process the boxes of its devices, in device order.

    Raises `ShardingError` for partial sums, because one device does not hold the elements of a box.
    """
    if sharding.has_partial_sums:
        raise ShardingError(
            with_location(
                f"the devices hold partial sums of an array with {sharding}; add them with "
                "sharding.reshard before its elements are read or moved to another process"
            )
        )
    boxes: dict[int, list[Box]] = {}
    for device, index in sharding.stored_indices_map(shape).items():
        boxes.setdefault(device.process_index, []).append(index_box(index, shape))
    return boxes


def has_all_elements(sharding: Sharding, shape: tuple[int, ...], process: int) -> bool:
    """Return whether one process holds every element of an array."""
    boxes = process_boxes(sharding, shape)
    distinct = {box for each in boxes.values() for box in each if box_size(box)}
    mine = boxes.get(process, [])
    return bool(mine) and distinct <= set(mine)


def is_readable(sharding: Sharding, type: TensorType) -> bool:
    """Return whether `read_elements` succeeds."""
    return (
        sharding.is_fully_addressable
        or config.gather
        or has_all_elements(sharding, type.shape, process_group().index)
    ) and not sharding.has_partial_sums


def needs_gather(sharding: Sharding, type: TensorType) -> bool:
    """Return whether reading an array is a collective operation of all processes."""
    return not all(
        has_all_elements(sharding, type.shape, process) for process in range(process_group().count)
    )


def read_elements(parts: Sequence[Buffer], sharding: Sharding, type: TensorType) -> Buffer:
    """Return all elements if this process holds them; raises `NotAddressableError` otherwise."""
    if has_all_elements(sharding, type.shape, process_group().index):
        return assemble_shards(parts, sharding, type)
    there = process_group()
    others = [p for p in process_boxes(sharding, type.shape) if p != there.index]
    listed = ", ".join(map(str, others))
    raise NotAddressableError(
        with_location(
            f"this array of type {type} is on {sharding.num_devices} devices, and "
            f"{sharding.num_devices - len(sharding.local_positions)} of them belong to "
            f"{'process' if len(others) == 1 else 'processes'} {listed}, while this is process "
            f"{there.index}; in every process, call shardir.distributed.gather_to_all(array) "
            "or gather_to_root(array), or set SHARDIR_GATHER=1; "
            "array.addressable_shards has the shards of this process"
        )
    )


def gather_elements(
    parts: Sequence[Buffer], sharding: Sharding, type: TensorType, root: int | None = None
) -> Buffer:
    """Return all elements in every process, or at `root` alone; an empty array in other
    processes."""
    there = process_group()
    processes = range(there.count) if root is None else (root,)
    requested = {process: [full_box(type.shape)] for process in processes}
    where = "" if root is None else f" to process {root}"
    result = fetch_boxes(
        parts, sharding, type, requested, f"gathering an array of type {type}{where}"
    )
    return result[0] if result else np.empty(0, type.numpy)


def reshard_buffers(
    parts: Sequence[Buffer], sharding: Sharding, to: Sharding, type: TensorType
) -> list[Buffer]:
    """Return the shards of this process's devices under another sharding, which may use other
    devices."""
    shape = type.shape
    boxes = process_boxes(to, shape)
    requested = {process: list(dict.fromkeys(each)) for process, each in boxes.items()}
    made = fetch_boxes(parts, sharding, type, requested, f"moving an array of type {type}")
    mine = process_group().index
    stored = to.stored_shape(shape)
    new = {
        box: pad_shard(part, stored)
        for box, part in zip(requested.get(mine, []), made, strict=True)
    }
    return [new[box] for box in boxes.get(mine, [])]


def fetch_boxes(
    parts: Sequence[Buffer],
    sharding: Sharding,
    type: TensorType,
    requested: dict[int, list[Box]],
    what: str,
) -> list[Buffer]:
    """Return the boxes that this process needs of an array; `requested` lists those of every
    process.

    Every process that holds or needs a shard must call it. Raises `DistributedError` when the
    processes pass different arrays.
    """
    there = process_group()
    pieces = ShardHolders(sharding, type.shape)
    if any(pieces.missing_boxes(boxes, process) for process, boxes in requested.items()):
        _check_agreement(process_boxes(sharding, type.shape), requested, what)
    mine = pieces.local_shards(parts, there.index)
    boxes = requested.get(there.index, [])
    made = [np.empty([stop - start for start, stop in box], type.numpy) for box in boxes]
    rows: dict[int, Buffer] = {}
    for process in requested:
        if process != there.index:
            sent = [
                mine[box][relative_slices(overlap, box)].reshape(-1)
                for overlap, box, sender in pieces.missing_boxes(requested[process], process)
                if sender == there.index
            ]
            if sent:
                rows[process] = np.concatenate(sent).view(np.uint8)
    sizes: dict[int, int] = {}
    for overlap, _, sender in pieces.missing_boxes(boxes, there.index):
        sizes[sender] = sizes.get(sender, 0) + box_size(overlap) * type.numpy.itemsize
    came = there.link.exchange(rows, sizes, what) if there.link and (rows or sizes) else {}
    at = dict.fromkeys(came, 0)
    for box, target in zip(boxes, made, strict=True):
        for piece, part in mine.items():
            if (shared := intersect_boxes(box, piece)) is not None:
                target[relative_slices(shared, box)] = part[relative_slices(shared, piece)]
        for overlap, _, sender in pieces.missing_boxes([box], there.index):
            end = at[sender] + box_size(overlap) * type.numpy.itemsize
            flat = came[sender][at[sender] : end].view(type.numpy)
            target[relative_slices(overlap, box)] = flat.reshape(
                [stop - start for start, stop in overlap]
            )
            at[sender] = end
    return made


def _check_agreement(
    held: Mapping[int, list[Box]], requested: Mapping[int, list[Box]], what: str
) -> None:
    """Check that all processes that hold or need a shard pass the same arrays."""
    there, members = process_group(), tuple(sorted({*held, *requested}))
    if there.link is None or there.index not in members:
        return
    digest = blake2b(repr((held, requested)).encode(), digest_size=16).digest()
    rows = there.link.gather(digest, what, members)
    if len(set(rows)) > 1:
        odd = next(process for process, row in zip(members, rows, strict=True) if row != rows[0])
        raise DistributedError(
            with_location(
                f"processes {members[0]} and {odd} are both {what}, with different shardings "
                "or devices; every process must pass the same array"
            )
        )


class ShardHolders:
    """The distinct boxes of an array, and the processes that hold each."""

    def __init__(self, sharding: Sharding, shape: tuple[int, ...]) -> None:
        self.sharding, self.shape = sharding, shape
        self.holders: dict[Box, list[int]] = {}
        for process, boxes in process_boxes(sharding, shape).items():
            for box in dict.fromkeys(boxes):
                if box_size(box):
                    self.holders.setdefault(box, []).append(process)

    def local_shards(self, parts: Sequence[Buffer], process: int) -> dict[Box, Buffer]:
        """Return the distinct shards of one process, without padding."""
        boxes = process_boxes(self.sharding, self.shape).get(process, [])
        return {
            box: without_padding(part, tuple(stop - start for start, stop in box))
            for box, part in zip(boxes, parts, strict=True)
            if box_size(box)
        }

    def missing_boxes(self, requested: Sequence[Box], process: int) -> list[tuple[Box, Box, int]]:
        """Return the ranges that a process must receive for `requested`, each with its box and the
        sender."""
        return [
            (overlap, box, holders[process % len(holders)])
            for want, (box, holders) in product(requested, self.holders.items())
            if process not in holders and (overlap := intersect_boxes(want, box)) is not None
        ]


def box_size(box: Box) -> int:
    """Return the number of elements in a box."""
    return prod(stop - start for start, stop in box)


def intersect_boxes(one: Box, other: Box) -> Box | None:
    """Return the intersection of two boxes, or `None` if it is empty."""
    overlap = tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(one, other, strict=True))
    return overlap if all(start < stop for start, stop in overlap) else None


def relative_slices(inner: Box, box: Box) -> tuple[slice, ...]:
    """Return the slices of `inner`, a box inside of `box`, relative to the start of `box`."""
    return tuple(
        slice(start - first, stop - first)
        for (start, stop), (first, _) in zip(inner, box, strict=True)
    )


def check_equal_across_processes(numbers: Buffer, to: Sharding) -> None:
    """Raise `ArgumentError` when processes provide different elements for one array."""
    there = process_group()
    if there.link is None or len({each.process_index for each in to.device_assignment}) == 1:
        return
    digest = blake2b(np.ascontiguousarray(numbers).reshape(-1).view(np.uint8).data, digest_size=16)
    row = f"{numbers.dtype}{numbers.shape}".encode() + digest.digest()
    rows = there.link.gather(row, "comparing the elements of an array to be placed")
    for process, other in enumerate(rows):
        if other != rows[0]:
            raise ArgumentError(
                with_location(
                    f"process {process} places other elements than process 0 on devices of several "
                    "processes; pass the same array in all, or the shard of each process to "
                    "shardir.distributed.from_process_local"
                )
            )
