"""The memory layout of Python objects, for native code that reads and makes them.

Native code reads the type of an object, and the slots of classes with `__slots__`. The offsets are
looked up and verified. If that fails (another Python, a free-threaded or a debug build), native
code that needs them is not used, and Python does its work.
"""

import ctypes
import sys
from collections.abc import Sequence
from functools import cache
from types import MemberDescriptorType

TYPE_OFFSET = 8
"""Byte offset in an object of the address of its type."""
_MEMBER_DEF_OFFSET = 40
"""Byte offset in a slot descriptor of the address of its definition."""
_SLOT_OFFSET_OFFSET = 16
"""Byte offset in a slot definition of the slot's offset in objects."""


@cache
def has_known_layout() -> bool:
    """Return whether objects of this Python have the expected layout."""
    if sys.implementation.name != "cpython" or {*sys.abiflags} & {"t", "d"}:
        return False
    if ctypes.sizeof(ctypes.c_void_p) != 8:
        return False
    samples: Sequence[object] = ({}, [], (1,), 1 << 40, has_known_layout)
    return all(_word(id(each) + TYPE_OFFSET) == id(type(each)) for each in samples)


def slot_offsets(probe: object, names: Sequence[str]) -> tuple[int, ...] | None:
    """Return the byte offsets of slots in objects like `probe`; `None` if they cannot be
    determined.

    The slots of `probe` are overwritten, and restored in the end.
    """
    if not has_known_layout():
        return None
    kind, found = type(probe), []
    for name in names:
        descriptor = getattr(kind, name)
        if type(descriptor) is not MemberDescriptorType:
            return None
        at = _word(_word(id(descriptor) + _MEMBER_DEF_OFFSET) + _SLOT_OFFSET_OFFSET)
        if not TYPE_OFFSET < at < kind.__basicsize__:
            return None
        before, token = _read_slot(descriptor, probe), object()
        descriptor.__set__(probe, token)
        there = _word(id(probe) + at) == id(token)
        descriptor.__set__(probe, before)
        if not there:
            return None
        found.append(at)
    return tuple(found)


def _read_slot(slot: MemberDescriptorType, probe: object) -> object:
    """Return the value of a slot; `None` if it is unset, which an array would explain in an
    error."""
    try:
        return slot.__get__(probe)
    except AttributeError:
        return None


def _word(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value
