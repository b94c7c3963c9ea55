"""How objects of Python lie in memory, for machine code that reads and makes them.

Machine code sees the type of an object, and the slots of classes that have `__slots__`. Where those
are is looked up and tried out; where they are not found (another Python, one without a GIL or
for finding errors), code that needs them is not used, and Python does its work.
"""

import ctypes
import sys
from collections.abc import Sequence
from functools import cache
from types import MemberDescriptorType

TYPE = 8
"""Bytes from an object to the address of its type."""
_MEMBER = 40
"""Bytes from the descriptor of a slot to the address of its definition."""
_OFFSET = 16
"""Bytes from there to the slot's offset in objects."""


@cache
def readable() -> bool:
    """Whether objects of this Python lie as it is taken for here."""
    if sys.implementation.name != "cpython" or {*sys.abiflags} & {"t", "d"}:
        return False
    if ctypes.sizeof(ctypes.c_void_p) != 8:
        return False
    samples: Sequence[object] = ({}, [], (1,), 1 << 40, readable)
    return all(_word(id(each) + TYPE) == id(type(each)) for each in samples)


def offsets(probe: object, names: Sequence[str]) -> tuple[int, ...] | None:
    """How far into objects like `probe` these slots are; `None` where that cannot be told.

    The slots of `probe` are written, and hold what they held in the end.
    """
    if not readable():
        return None
    kind, found = type(probe), []
    for name in names:
        descriptor = getattr(kind, name)
        if type(descriptor) is not MemberDescriptorType:
            return None
        at = _word(_word(id(descriptor) + _MEMBER) + _OFFSET)
        if not TYPE < at < kind.__basicsize__:
            return None
        before, token = _held(descriptor, probe), object()
        descriptor.__set__(probe, token)
        there = _word(id(probe) + at) == id(token)
        descriptor.__set__(probe, before)
        if not there:
            return None
        found.append(at)
    return tuple(found)


def _held(slot: MemberDescriptorType, probe: object) -> object:
    """What a slot holds; `None` where nothing was written yet, which an array would explain."""
    try:
        return slot.__get__(probe)
    except AttributeError:
        return None


def _word(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value
