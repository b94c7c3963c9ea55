"""What each process has for itself and all are taken to have: compared before a first run.

An argument that nobody has placed, a Python number, or an array that a function uses without
being given it, is in every process its own. A program on devices of several processes takes it to
be the same in all of them. Processes that draw it at random, or read their own part of a file,
find out here, rather than in what they compute.
"""

from collections.abc import Callable, Sequence
from hashlib import blake2b

import numpy as np

from shardir.frontend.array import Array
from shardir.frontend.buffers import Buffer
from shardir.frontend.devices import Device
from shardir.frontend.errors import ArgumentError
from shardir.frontend.locations import point
from shardir.frontend.processes import here
from shardir.types import TensorType

DIGEST = 16
PLACED = bytes(DIGEST)
"""Stands for an argument that is on the devices of a mesh."""

Whole = Callable[[object, int], Buffer]


def members(devices: Sequence[Device]) -> tuple[int, ...]:
    """The processes of these devices, if they are several and this is one of them."""
    found = tuple(sorted({device.process_index for device in devices}))
    return found if len(found) > 1 and here().index in found else ()


def compare_own(
    program: str,
    names: Sequence[str],
    types: Sequence[TensorType],
    arguments: Sequence[object],
    whole: Whole,
    processes: tuple[int, ...],
) -> None:
    """Raises `ArgumentError` in all of `processes` if one has other numbers than the first for an
    argument that it has not placed.

    The last arguments are those that the function uses without being given them.
    """
    link = here().link
    if link is None:
        return
    mine = [_digest(argument, i, whole) for i, argument in enumerate(arguments)]
    rows = link.gather(b"".join(mine), f"the start of {program}", processes)
    first = rows[0]
    for process, row in zip(processes, rows, strict=True):
        # Rows of other lengths are of other programs, which are compared next.
        if row == first or len(row) != len(first):
            continue
        for i, (name, type) in enumerate(zip(names, types, strict=True)):
            one, other = (each[i * DIGEST : (i + 1) * DIGEST] for each in (first, row))
            if one == other or PLACED in (one, other):
                continue
            raise ArgumentError(
                point(
                    f"%{name} of {program} ({type}) is not placed on devices, and has other "
                    f"numbers in {link.who(process)} than in {link.who(processes[0])}; give the "
                    "same in every process, or each its own part by "
                    "shardir.distributed.from_process_local"
                )
            )


def _digest(argument: object, i: int, whole: Whole) -> bytes:
    if type(argument) is Array and argument.signature.sharding is not None:
        return PLACED
    numbers = np.ascontiguousarray(whole(argument, i)).reshape(-1).view(np.uint8)
    return blake2b(numbers.data, digest_size=DIGEST).digest()
