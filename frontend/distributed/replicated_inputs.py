"""Checks of replicated host inputs, which each process holds separately and must be equal.

A Python number, a NumPy array and an uncommitted array exist separately in every process. A program
on devices of several processes assumes that they are equal. Each call therefore computes a digest
of them, which the processes exchange with the first messages of the call (see
`shardir.backends.distributed.input_check`). If digests differ, the processes compare the arguments
one by one, and all of them raise an error that names the argument. The same check applies to arrays
that are assembled from shards that several processes hold.

If a process cannot convert an argument, such as a number that is too large, it takes part in the
call with zeros and a digest that differs from all others. All processes then raise its error.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha1
from typing import NoReturn
from weakref import ref

import numpy as np

from shardir.backends.base import InputCheck, ProcessLink
from shardir.errors import ShardirError
from shardir.frontend import errors
from shardir.frontend.arrays.array import Array
from shardir.frontend.arrays.shard_buffers import Buffer
from shardir.frontend.config import config
from shardir.frontend.distributed.processes import process_group
from shardir.frontend.distributed.shard_exchange import Box, box_size, process_boxes
from shardir.frontend.errors import ArgumentError
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.shardings.devices import Device
from shardir.frontend.shardings.sharding import Sharding
from shardir.frontend.source_locations import with_location
from shardir.ir.types import NUMPY_DTYPES, TensorType

DIGEST_BYTES = 16
COMMITTED_DIGEST = bytes(DIGEST_BYTES)
"""Placeholder digest of an argument that is committed to the devices of a mesh."""
FAILED_DIGEST = b"\xfe" * DIGEST_BYTES
"""Placeholder digest of an argument that its process cannot convert."""
MIN_CACHED_DIGEST_BYTES = 4096
"""Minimum size in bytes of arrays whose digest is cached, which is valid because arrays are
immutable."""
REPLICATED_INPUT_REMEDY = (
    "pass the same in every process, or each its shard with shardir.distributed.from_process_local"
)

ReadElements = Callable[[object, int], Buffer]
"""(argument, its position) -> its elements in the element type of the program."""


def participating_processes(devices: Sequence[Device]) -> tuple[int, ...]:
    """Return the processes of these devices if there are several and this is one of them."""
    result = tuple(sorted({device.process_index for device in devices}))
    return result if len(result) > 1 and process_group().index in result else ()


@dataclass(frozen=True)
class ReplicatedInputs:
    """The arguments of a program on devices of several `processes`."""

    program: str
    names: Sequence[str]
    types: Sequence[TensorType]
    read_elements: ReadElements
    processes: tuple[int, ...]
    exchanges: dict[bool, bool] = field(default_factory=dict)
    """Maps whether this process has replicated inputs to whether any process has."""

    def check(self, arguments: list[PyTree], hidden: Sequence[object]) -> InputCheck | None:
        """Return the comparison that the processes make for a call with these arguments, or `None`.

        `hidden` are the captured arrays. There is no exchange if no process has a replicated input,
        which the processes determine in the first call of this kind. That call compares the
        arguments one by one, and those in `hidden`, which cannot change afterwards. It raises
        `ArgumentError` in all processes if one has other elements than the first for an uncommitted
        argument. If a process cannot convert an argument, zeros replace it in `arguments`, and all
        processes raise the error of the conversion: here in the first call of this kind, otherwise
        when the comparison ends.
        """
        error: ShardirError | None = None
        try:
            digests = [self._digest(x, i) for i, x in enumerate(arguments)]
        except ShardirError:
            digests, error = self._replace_failing(arguments)
        kind = any(digest is not COMMITTED_DIGEST for digest in digests)
        if kind not in self.exchanges:
            more = [self._digest(x, i) for i, x in enumerate(hidden, len(digests))]
            rows = self._compare(b"".join((*digests, *more)), error)
            visible = len(digests) * DIGEST_BYTES
            self.exchanges[kind] = any(row[:visible].strip(b"\0") for row in rows)
            return None
        if not self.exchanges[kind]:
            if error is not None:
                raise error
            return None
        joined = b"".join(digests)
        # The digest of a process that failed differs from those of others that failed alike.
        own = joined if error is None else joined + str(process_group().index).encode()
        return InputCheck(_compute_digest(own), lambda: self._raise_difference(joined, error))

    def _replace_failing(self, arguments: list[PyTree]) -> tuple[list[bytes], ShardirError | None]:
        """Replace the arguments that cannot be converted by zeros.

        Return the digests of the arguments, and the first error of a conversion.
        """
        digests: list[bytes] = []
        first: ShardirError | None = None
        for i, x in enumerate(arguments):
            try:
                digests.append(self._digest(x, i))
            except ShardirError as error:
                first = first or error
                digests.append(FAILED_DIGEST)
                arguments[i] = np.zeros(self.types[i].shape, NUMPY_DTYPES[self.types[i].dtype])
        return digests, first

    def _raise_difference(self, digests: bytes, error: ShardirError | None) -> None:
        self._compare(digests, error)

    def _compare(self, digests: bytes, error: ShardirError | None) -> list[bytes]:
        """Return the digests of all processes; raises `ArgumentError` in all if they differ, and
        the error of a conversion that failed in one of them, which is `error` in this process."""
        link = process_group().link
        assert link is not None
        rows = link.gather(digests, f"comparing the inputs of {self.program}", self.processes)
        if any(FAILED_DIGEST in _split_digests(row) for row in rows):
            self._raise_failure(link, error)
        first = rows[0]
        for process, row in zip(self.processes, rows, strict=True):
            for i, (name, type) in enumerate(zip(self.names, self.types, strict=False)):
                one, other = (each[i * DIGEST_BYTES :][:DIGEST_BYTES] for each in (first, row))
                if one == other or COMMITTED_DIGEST in (one, other):
                    continue
                raise ArgumentError(
                    with_location(
                        f"%{name} of {self.program} ({type}) is not placed on devices, and has "
                        f"other elements in {link.process_name(process)} than in "
                        f"{link.process_name(self.processes[0])}; {REPLICATED_INPUT_REMEDY}"
                    )
                )
        return rows

    def _raise_failure(self, link: ProcessLink, error: ShardirError | None) -> NoReturn:
        """Raise the error of the first process that cannot convert an argument in all processes."""
        text = b"" if error is None else f"{type(error).__name__}\n{error}".encode()
        rows = link.gather(text, f"reading the errors of {self.program}", self.processes)
        if error is not None:
            raise error
        process, row = next(pair for pair in zip(self.processes, rows, strict=True) if pair[1])
        kind, _, message = row.decode().partition("\n")
        where = f"{link.process_name(process)} cannot convert an argument of {self.program}"
        first = message.partition("\n")[0]
        raise getattr(errors, kind, ArgumentError)(with_location(f"{where}: {first}"))

    def _digest(self, argument: object, i: int) -> bytes:
        if type(argument) is not Array:
            return _compute_digest(self.read_elements(argument, i))
        if argument.signature.sharding is not None:
            return COMMITTED_DIGEST
        if argument.type.nbytes < MIN_CACHED_DIGEST_BYTES:
            return _compute_digest(argument.to_numpy_view())
        known = _digests.get(id(argument))
        if known is None or known[0]() is not argument:
            key = id(argument)
            gone = ref(argument, lambda _: _digests.pop(key, None))
            known = _digests[key] = gone, _compute_digest(argument.to_numpy_view())
        return known[1]


_digests: dict[int, tuple["ref[Array]", bytes]] = {}
"""The digests of large uncommitted arrays, by the id of the array."""


def _split_digests(row: bytes) -> list[bytes]:
    """Return the digests of the arguments of a process."""
    return [row[i : i + DIGEST_BYTES] for i in range(0, len(row), DIGEST_BYTES)]


def _compute_digest(numbers: Buffer | bytes) -> bytes:
    """Return a digest against accidental differences, not attacks, with the fastest hash of
    hashlib."""
    data: bytes | memoryview = (
        numbers
        if isinstance(numbers, bytes)
        else np.ascontiguousarray(numbers).reshape(-1).view(np.uint8).data
    )
    return sha1(data, usedforsecurity=False).digest()[:DIGEST_BYTES]


def check_replicated_shards(
    parts: Sequence[Buffer], sharding: Sharding, type: TensorType, word: str
) -> None:
    """Raise `ArgumentError` in all processes if two hold different elements for one shard of an
    array.

    `parts` are the shards of this process's devices, and `word` names the function that makes the
    array. Processes exchange digests only where the sharding replicates a shard over several of
    them.
    """
    if not config.check_replicated_inputs:
        return
    boxes = process_boxes(sharding, type.shape)
    holders: dict[Box, list[int]] = {}
    for process, each in boxes.items():
        for box in dict.fromkeys(each):
            if box_size(box):
                holders.setdefault(box, []).append(process)
    there = process_group()
    shared = [box for box, processes in holders.items() if len(processes) > 1]
    if there.link is None or not shared or there.index not in boxes:
        return
    mine = dict(zip(boxes[there.index], parts, strict=True))
    row = b"".join(
        _compute_digest(mine[box]) if box in mine else COMMITTED_DIGEST for box in shared
    )
    processes = tuple(sorted(boxes))
    rows = there.link.gather(row, f"comparing the shards of {word}", processes)
    by_process = dict(zip(processes, rows, strict=True))
    for i, box in enumerate(shared):
        first, *others = sorted(holders[box])
        at = slice(i * DIGEST_BYTES, (i + 1) * DIGEST_BYTES)
        for process in others:
            if by_process[process][at] != by_process[first][at]:
                index = ", ".join(f"{start}:{stop}" for start, stop in box)
                what = f"shard [{index}]" if box else "element"
                who = there.link.process_name
                raise ArgumentError(
                    with_location(
                        f"{word} has other elements in {who(process)} than in {who(first)} for the "
                        f"{what} of an array of type {type}, which {sharding} replicates; pass "
                        "the same in every process, or a sharding that gives each its own shard"
                    )
                )
