"""Classes whose objects can be called through native code by the vectorcall protocol.

Objects of a class with this base have a word for the address of native code, and one for its data.
While the first is 0, a call goes to the class's `__call__`. Python recognizes such objects by a
flag of their class, which is set and verified here.
"""

import ctypes
from ctypes import pythonapi
from types import FunctionType
from typing import Any, TypeVar

from shardir.backends.cpu.native.runtime.objects import readable
from shardir.backends.cpu.native.runtime.once import once
from shardir.backends.cpu.native.runtime.specs import (
    BASETYPE,
    HAVE_VECTORCALL,
    HEAD_BYTES,
    METHOD_DESCRIPTOR,
    SIZE,
    TP_DESCR_GET,
    made_type,
    slot_of,
)

Class = TypeVar("Class", bound=type)

_CODE_PLACE = HEAD_BYTES
HEADER_PLACE = HEAD_BYTES + 8
"""Byte offset in an object of the address of its data."""
_FLAGS_PLACE = 168
"""Byte offset in a class of its flags."""


_LEFT_OUT = "__dict__", "__weakref__", "__get__"


@once
def _base() -> Any:
    return made_type(
        "shardir.backends.cpu.native.runtime.callables.Quick",
        2,
        [("__vectorcalloffset__", SIZE, _CODE_PLACE)],
        # Such objects in a class body become methods, as functions do.
        {TP_DESCR_GET: slot_of(FunctionType, TP_DESCR_GET)},
        BASETYPE | HAVE_VECTORCALL,
    )


def quick_class(kind: Class) -> Class:
    """Return the class with vectorcall support, or unchanged if this Python's layout is unknown.

    The class must have no other base and no slots; its objects become methods in any case.
    """
    if not readable():
        return kind
    members = {k: v for k, v in vars(kind).items() if k not in _LEFT_OUT}
    result: Any = type(kind)(kind.__name__, (_base(),), members)
    flags = ctypes.c_uint64.from_address(id(result) + _FLAGS_PLACE)
    if flags.value != result.__flags__:
        return kind
    flags.value |= HAVE_VECTORCALL | METHOD_DESCRIPTOR
    return result if _works(result) else kind


def _works(kind: Any) -> bool:
    """Return whether Python finds the code of an object at the expected offset."""
    pythonapi.PyVectorcall_Function.restype = ctypes.c_void_p
    pythonapi.PyVectorcall_Function.argtypes = [ctypes.py_object]
    probe, sentinel = object.__new__(kind), 0x1230
    place = ctypes.c_uint64.from_address(id(probe) + _CODE_PLACE)
    place.value = sentinel
    found = pythonapi.PyVectorcall_Function(probe)
    place.value = 0
    return bool(found == sentinel and kind.__flags__ & METHOD_DESCRIPTOR)


def is_quick(value: object) -> bool:
    """Return whether native code can be installed for an object."""
    return readable() and isinstance(value, _base())


def install(target: object, code: int, header: int) -> None:
    """Let calls of an object run native code; the data at `header` must live as long as the
    object."""
    ctypes.c_uint64.from_address(id(target) + HEADER_PLACE).value = header
    ctypes.c_uint64.from_address(id(target) + _CODE_PLACE).value = code
