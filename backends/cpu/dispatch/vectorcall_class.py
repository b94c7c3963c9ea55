"""Classes whose objects can be called through native code by the vectorcall protocol.

Objects of a class with this base have a word for the address of native code, and one for its data.
While the first is 0, a call goes to the class's `__call__`. Python recognizes such objects by a
flag of their class, which is set and verified here.
"""

import ctypes
from ctypes import pythonapi
from types import FunctionType
from typing import Any, TypeVar

from shardir.backends.cpu.dispatch.object_layout import has_known_layout
from shardir.backends.cpu.dispatch.once import memoize_once
from shardir.backends.cpu.dispatch.type_specs import (
    BASETYPE,
    HAVE_VECTORCALL,
    MEMBER_SSIZE,
    METHOD_DESCRIPTOR,
    OBJECT_HEAD_BYTES,
    TP_DESCR_GET,
    make_type,
    type_slot_address,
)

Class = TypeVar("Class", bound=type)

_CODE_OFFSET = OBJECT_HEAD_BYTES
HEADER_OFFSET = OBJECT_HEAD_BYTES + 8
"""Byte offset in an object of the address of its data."""
_TYPE_FLAGS_OFFSET = 168
"""Byte offset in a class of its flags."""


_EXCLUDED_MEMBERS = "__dict__", "__weakref__", "__get__"


@memoize_once
def _vectorcall_base() -> Any:
    return make_type(
        "shardir.backends.cpu.dispatch.vectorcall_class.Quick",
        2,
        [("__vectorcalloffset__", MEMBER_SSIZE, _CODE_OFFSET)],
        # Such objects in a class body become methods, as functions do.
        {TP_DESCR_GET: type_slot_address(FunctionType, TP_DESCR_GET)},
        BASETYPE | HAVE_VECTORCALL,
    )


def vectorcall_class(kind: Class) -> Class:
    """Return the class with vectorcall support, or unchanged if this Python's layout is unknown.

    The class must have no other base and no slots; its objects become methods in any case.
    """
    if not has_known_layout():
        return kind
    members = {k: v for k, v in vars(kind).items() if k not in _EXCLUDED_MEMBERS}
    result: Any = type(kind)(kind.__name__, (_vectorcall_base(),), members)
    flags = ctypes.c_uint64.from_address(id(result) + _TYPE_FLAGS_OFFSET)
    if flags.value != result.__flags__:
        return kind
    flags.value |= HAVE_VECTORCALL | METHOD_DESCRIPTOR
    return result if _is_supported(result) else kind


def _is_supported(kind: Any) -> bool:
    """Return whether Python finds the code of an object at the expected offset."""
    pythonapi.PyVectorcall_Function.restype = ctypes.c_void_p
    pythonapi.PyVectorcall_Function.argtypes = [ctypes.py_object]
    probe, sentinel = object.__new__(kind), 0x1230
    place = ctypes.c_uint64.from_address(id(probe) + _CODE_OFFSET)
    place.value = sentinel
    found = pythonapi.PyVectorcall_Function(probe)
    place.value = 0
    return bool(found == sentinel and kind.__flags__ & METHOD_DESCRIPTOR)


def has_vectorcall(value: object) -> bool:
    """Return whether native code can be installed for an object."""
    return has_known_layout() and isinstance(value, _vectorcall_base())


def install_vectorcall(target: object, code: int, header: int) -> None:
    """Let calls of an object run native code; the data at `header` must live as long as the
    object."""
    ctypes.c_uint64.from_address(id(target) + HEADER_OFFSET).value = header
    ctypes.c_uint64.from_address(id(target) + _CODE_OFFSET).value = code
