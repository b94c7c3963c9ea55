"""The functions and objects of Python that machine code uses: their C types, and where they are."""

import ctypes
from ctypes import pythonapi
from typing import Any

from shardir.backends.cpu.native.llvm.text import Function, Module, Value

FUNCTIONS: dict[str, tuple[str, tuple[str, ...]]] = {
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
"""The results and parameters of each."""

OBJECTS: dict[str, object] = {
    "none": None, "true": True, "false": False, "type_error": TypeError, "empty_text": "",
}  # fmt: skip

_WRONG_COUNT = "a program takes one address for each of its slots but the first"


def declare_python(module: Module) -> None:
    """Say that all of it exists."""
    for name, (result, params) in FUNCTIONS.items():
        module.declare(name, result, params)
    for name in OBJECTS:
        module.declarations.setdefault(f"@shardir_{name} = external global i8")
    size = len(_WRONG_COUNT) + 1
    module.declarations.setdefault(
        f'@wrong_count = internal constant [{size} x i8] c"{_WRONG_COUNT}\\00"'
    )


def python_addresses() -> dict[str, int]:
    """Where all of it is, by the names that modules know it by."""
    functions = {name: address(pythonapi[name]) for name in FUNCTIONS}
    return functions | {f"shardir_{name}": id(each) for name, each in OBJECTS.items()}


def python_object(f: Function, name: str) -> Value:
    """One of `OBJECTS`."""
    return Value(f"@shardir_{name}", "ptr", f)


def refuse_count(f: Function) -> None:
    """Raise the `TypeError` of a built-in function that is not called with what it takes."""
    f.call("PyErr_SetString", [python_object(f, "type_error"), Value("@wrong_count", "ptr", f)])


def address(function: Any) -> int:
    """The address of a function that ctypes found."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0
