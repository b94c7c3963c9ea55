"""Make Python types whose objects have words that native code reads and writes.

`PyType_FromSpec` makes a type whose objects have words of plain memory, which Python neither visits
nor clears.
"""

import ctypes
from collections.abc import Mapping, Sequence
from ctypes import pythonapi
from typing import Any

OBJECT_HEAD_BYTES = 16
"""The head of every object: reference count and type."""

HAVE_VECTORCALL = 1 << 11
METHOD_DESCRIPTOR = 1 << 17
BASETYPE = 1 << 10
DISALLOW_INSTANTIATION = 1 << 7
_VERSION_TAG = 1 << 18

TP_DEALLOC = 52
TP_DESCR_GET = 54
_TP_MEMBERS = 72
MEMBER_UINT64 = 18
"""A member that is an unsigned 64-bit integer."""
MEMBER_SSIZE = 19
"""A member that is an offset in the object (`Py_ssize_t`)."""
_MEMBER_READ_ONLY = 1


class _Slot(ctypes.Structure):
    _fields_ = (("number", ctypes.c_int), ("value", ctypes.c_void_p))


class _Member(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("kind", ctypes.c_int),
        ("offset", ctypes.c_ssize_t),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


class _Spec(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("basicsize", ctypes.c_int),
        ("itemsize", ctypes.c_int),
        ("flags", ctypes.c_uint),
        ("slots", ctypes.c_void_p),
    )


_live_specs: list[object] = []
"""Types refer to their specs forever."""


def type_slot_address(kind: type, number: int) -> int:
    """Return the address of a slot function of a Python class."""
    find = pythonapi.PyType_GetSlot
    find.restype, find.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_int]
    found: int = find(kind, number)
    return found


def make_type(
    name: str,
    words: int,
    members: Sequence[tuple[str, int, int]],
    slots: Mapping[int, int],
    flags: int,
) -> Any:
    """Return a type; `members` are (name, kind, offset), `slots` are function addresses by
    number."""
    rows = [
        _Member(each.encode(), kind, offset, _MEMBER_READ_ONLY, None)
        for each, kind, offset in members
    ]
    table = (_Member * (len(rows) + 1))(*rows)
    given = {**slots, _TP_MEMBERS: ctypes.addressof(table)}
    filled = (_Slot * (len(given) + 1))(*(_Slot(*each) for each in given.items()))
    spec = _Spec(
        name.encode(),
        OBJECT_HEAD_BYTES + 8 * words,
        0,
        flags | _VERSION_TAG,
        ctypes.addressof(filled),
    )
    make = pythonapi.PyType_FromSpec
    make.restype = ctypes.py_object
    make.argtypes = [ctypes.c_void_p]
    result = make(ctypes.addressof(spec))
    _live_specs.append((result, spec, filled, table))
    return result
