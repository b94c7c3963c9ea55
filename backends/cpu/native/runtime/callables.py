"""Classes whose objects machine code can be called for.

Objects of a class with this base have a word for the address of that code, and one for what it
works by. As long as the first is 0, a call goes to the class's `__call__` as ever. Python knows
such objects by a flag of their class, which is set here, and tried out.
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
"""Bytes from an object to its words."""
_FLAGS_PLACE = 168
"""Bytes from a class to its flags."""


_LEFT_OUT = "__dict__", "__weakref__", "__get__"


@once
def _base() -> Any:
    return made_type(
        "shardir.backends.cpu.native.runtime.callables.Quick",
        2,
        [("__vectorcalloffset__", SIZE, _CODE_PLACE)],
        # Objects in classes become methods as functions do, which need not be functions for that.
        {TP_DESCR_GET: slot_of(FunctionType, TP_DESCR_GET)},
        BASETYPE | HAVE_VECTORCALL,
    )


def quick_class(kind: Class) -> Class:
    """The class again, so that machine code can be called for its objects where Python is as it is
    taken for here. It must have no other base, and no slots; its objects become methods anyway."""
    if not readable():
        return kind
    members = {k: v for k, v in vars(kind).items() if k not in _LEFT_OUT}
    made: Any = type(kind)(kind.__name__, (_base(),), members)
    flags = ctypes.c_uint64.from_address(id(made) + _FLAGS_PLACE)
    if flags.value != made.__flags__:
        return kind
    flags.value |= HAVE_VECTORCALL | METHOD_DESCRIPTOR
    return made if _works(made) else kind


def _works(kind: Any) -> bool:
    """Whether Python finds the code of an object where it is put."""
    pythonapi.PyVectorcall_Function.restype = ctypes.c_void_p
    pythonapi.PyVectorcall_Function.argtypes = [ctypes.py_object]
    probe, somewhere = object.__new__(kind), 0x1230
    place = ctypes.c_uint64.from_address(id(probe) + _CODE_PLACE)
    place.value = somewhere
    found = pythonapi.PyVectorcall_Function(probe)
    place.value = 0
    return bool(found == somewhere and kind.__flags__ & METHOD_DESCRIPTOR)


def is_quick(thing: object) -> bool:
    """Whether machine code can be called for an object."""
    return readable() and isinstance(thing, _base())


def install(thing: object, code: int, header: int) -> None:
    """Call machine code for an object from now on; what is at `header` has to live as long."""
    ctypes.c_uint64.from_address(id(thing) + HEADER_PLACE).value = header
    ctypes.c_uint64.from_address(id(thing) + _CODE_PLACE).value = code
