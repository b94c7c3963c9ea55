"""References to objects of Python, taken and dropped by machine code.

Until Python 3.12, where some objects live for ever, a count goes up and down in place: what a small
call takes and drops is a tenth of its time when it is done by functions.
"""

import sys

from shardir.backends.cpu.native.llvm.text import Function, Value
from shardir.backends.cpu.native.runtime.objects import TYPE

INLINE = sys.version_info < (3, 12)


def take(f: Function, thing: Value) -> None:
    """One reference more."""
    if INLINE:
        f.store(f.load(thing, "i64") + 1, thing)
    else:
        f.call("Py_IncRef", [thing])


def drop(f: Function, thing: Value) -> None:
    """One reference less."""
    if INLINE:
        left = f.load(thing, "i64") - 1
        f.store(left, thing)
        with f.when(left.is_("eq", 0)):
            f.call("_Py_Dealloc", [thing])
    else:
        f.call("Py_DecRef", [thing])


def type_of(f: Function, thing: Value) -> Value:
    """The type of an object."""
    return f.load(f.offset(thing, TYPE), "ptr")
