"""Reference counting of Python objects in native code.

Before Python 3.12, which introduced immortal objects, counts are updated inline: function calls for
them would take a tenth of the time of a small call.
"""

import sys

from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMValue
from shardir.backends.cpu.dispatch.object_layout import TYPE_OFFSET

INLINE_REFERENCE_COUNTS = sys.version_info < (3, 12)


def emit_incref(f: LLVMFunction, value: LLVMValue) -> None:
    """Increment a reference count."""
    if INLINE_REFERENCE_COUNTS:
        f.store(f.load(value, "i64") + 1, value)
    else:
        f.call("Py_IncRef", [value])


def emit_decref(f: LLVMFunction, value: LLVMValue) -> None:
    """Decrement a reference count."""
    if INLINE_REFERENCE_COUNTS:
        left = f.load(value, "i64") - 1
        f.store(left, value)
        with f.when(left.is_("eq", 0)):
            f.call("_Py_Dealloc", [value])
    else:
        f.call("Py_DecRef", [value])


def type_of(f: LLVMFunction, value: LLVMValue) -> LLVMValue:
    """Return the type of an object."""
    return f.load(f.offset(value, TYPE_OFFSET), "ptr")
