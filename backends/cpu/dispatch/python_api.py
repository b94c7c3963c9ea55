"""The functions and objects of Python that generated code uses: their C types and addresses.

All are functions of Python's public C API: generated code reads no Python object in memory.
"""

import ctypes
from ctypes import pythonapi
from typing import Any

from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMModule, LLVMValue

PYTHON_FUNCTIONS: dict[str, tuple[str, tuple[str, ...]]] = {
    "PyErr_CheckSignals": ("i32", ()),
    "PyErr_Occurred": ("ptr", ()),
    "PyErr_SetString": ("void", ("ptr", "ptr")),
    "PyEval_RestoreThread": ("void", ("ptr",)),
    "PyEval_SaveThread": ("ptr", ()),
    "PyLong_AsVoidPtr": ("ptr", ("ptr",)),
    "PyObject_CallNoArgs": ("ptr", ("ptr",)),
    "Py_DecRef": ("void", ("ptr",)),
    "Py_IncRef": ("void", ("ptr",)),
}
"""The result and parameter types of each function."""

PYTHON_OBJECTS: dict[str, object] = {"none": None, "type_error": TypeError}

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
