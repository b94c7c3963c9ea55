"""The functions and objects of Python that native code uses: their C types and addresses.

Before Python 3.12, which introduced immortal objects, reference counts are updated inline: function
calls for them would take a tenth of the time of a small call.
"""

import ctypes
import sys
from ctypes import pythonapi
from typing import Any

from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMModule, LLVMValue
from shardir.backends.cpu.dispatch.object_layout import TYPE_OFFSET

PYTHON_FUNCTIONS: dict[str, tuple[str, tuple[str, ...]]] = {
    "PyContextVar_Get": ("i32", ("ptr", "ptr", "ptr")),
    "PyDict_GetItem": ("ptr", ("ptr", "ptr")),
    "PyDict_Next": ("i32", ("ptr", "ptr", "ptr", "ptr")),
    "PyDict_Size": ("i64", ("ptr",)),
    "PyErr_CheckSignals": ("i32", ()),
    "PyErr_Clear": ("void", ()),
    "PyErr_Occurred": ("ptr", ()),
    "PyErr_SetString": ("void", ("ptr", "ptr")),
    "PyEval_RestoreThread": ("void", ("ptr",)),
    "PyEval_SaveThread": ("ptr", ()),
    "PyFloat_AsDouble": ("double", ("ptr",)),
    "PyList_Append": ("i32", ("ptr", "ptr")),
    "PyList_AsTuple": ("ptr", ("ptr",)),
    "PyList_GetItem": ("ptr", ("ptr", "i64")),
    "PyList_New": ("ptr", ("i64",)),
    "PyList_SetItem": ("i32", ("ptr", "i64", "ptr")),
    "PyList_Size": ("i64", ("ptr",)),
    "PyLong_AsLongLongAndOverflow": ("i64", ("ptr", "ptr")),
    "PyLong_AsVoidPtr": ("ptr", ("ptr",)),
    "PyLong_FromVoidPtr": ("ptr", ("ptr",)),
    "PyObject_CallNoArgs": ("ptr", ("ptr",)),
    "PyObject_CallOneArg": ("ptr", ("ptr", "ptr")),
    "PyObject_RichCompareBool": ("i32", ("ptr", "ptr", "i32")),
    "PyObject_Vectorcall": ("ptr", ("ptr", "ptr", "i64", "ptr")),
    "PyTuple_GetItem": ("ptr", ("ptr", "i64")),
    "PyTuple_New": ("ptr", ("i64",)),
    "PyTuple_SetItem": ("i32", ("ptr", "i64", "ptr")),
    "PyTuple_Size": ("i64", ("ptr",)),
    "PyType_GenericAlloc": ("ptr", ("ptr", "i64")),
    "Py_DecRef": ("void", ("ptr",)),
    "Py_IncRef": ("void", ("ptr",)),
    "_Py_Dealloc": ("void", ("ptr",)),
}
"""The result and parameter types of each function."""

PYTHON_OBJECTS: dict[str, object] = {
    "none": None, "true": True, "false": False, "type_error": TypeError, "empty_text": "",
}  # fmt: skip

_WRONG_COUNT_MESSAGE = "a program takes one address for each slot except slot 0"


def declare_python(module: LLVMModule) -> None:
    """Declare the functions and objects in a module."""
    for name, (result, params) in PYTHON_FUNCTIONS.items():
        module.declare(name, result, params)
    for name in PYTHON_OBJECTS:
        module.declarations.setdefault(f"@shardir_{name} = external global i8")
    size = len(_WRONG_COUNT_MESSAGE) + 1
    module.declarations.setdefault(
        f'@wrong_count = internal constant [{size} x i8] c"{_WRONG_COUNT_MESSAGE}\\00"'
    )


def python_addresses() -> dict[str, int]:
    """Return the addresses of functions and objects by their names in modules."""
    functions = {name: function_address(pythonapi[name]) for name in PYTHON_FUNCTIONS}
    return functions | {f"shardir_{name}": id(each) for name, each in PYTHON_OBJECTS.items()}


def python_object(f: LLVMFunction, name: str) -> LLVMValue:
    """Return one of `PYTHON_OBJECTS`."""
    return LLVMValue(f"@shardir_{name}", "ptr", f)


def raise_wrong_count(f: LLVMFunction) -> None:
    """Raise the `TypeError` of a program that is called with a wrong number of addresses."""
    f.call("PyErr_SetString", [python_object(f, "type_error"), LLVMValue("@wrong_count", "ptr", f)])


def function_address(function: Any) -> int:
    """Return the address of a function that ctypes found."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0


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
