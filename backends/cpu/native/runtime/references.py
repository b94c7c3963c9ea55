"""Reference counting of Python objects in native code.

Before Python 3.12, which introduced immortal objects, counts are updated inline: function calls for
them would take a tenth of the time of a small call.
"""

import sys

from shardir.backends.cpu.native.llvm.text import Function, Value
from shardir.backends.cpu.native.runtime.objects import TYPE

INLINE = sys.version_info < (3, 12)


def take(f: Function, value: Value) -> None:
    """Increment a reference count."""
    if INLINE:
        f.store(f.load(value, "i64") + 1, value)
    else:
        f.call("Py_IncRef", [value])


def drop(f: Function, value: Value) -> None:
    """Decrement a reference count."""
    if INLINE:
        left = f.load(value, "i64") - 1
        f.store(left, value)
        with f.when(left.is_("eq", 0)):
            f.call("_Py_Dealloc", [value])
    else:
        f.call("Py_DecRef", [value])


def type_of(f: Function, value: Value) -> Value:
    """Return the type of an object."""
    return f.load(f.offset(value, TYPE), "ptr")
