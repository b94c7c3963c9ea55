"""Call a program from Python without ctypes: a built-in function over native code.

`PyCFunction_NewEx` makes a Python function of native code with the right signature. One piece of
code serves all programs: the function's `self` is an integer, the address of the program's header.
A call takes the addresses of slots 1, 2, ... and returns None. It releases the GIL only if the
program is long enough, and runs Python's signal handlers between the phases of long programs.
"""

import ctypes
from collections.abc import Callable
from ctypes import pythonapi
from functools import wraps
from typing import Any, TypeVar

from shardir.backends.cpu.codegen.llvm_text import (
    LLVMFunction,
    LLVMModule,
    LLVMValue,
    StackVariable,
)
from shardir.backends.cpu.dispatch.python_api import python_object, raise_wrong_count
from shardir.backends.cpu.threads import shared_memory_layout as at

METH_FASTCALL = 0x80

Result = TypeVar("Result")


def memoize_once(make: Callable[..., Result]) -> Callable[..., Result]:
    """Return `make` with its first result for equal arguments memoized forever.

    Native code refers to objects by address, so all threads must get the same object; with
    concurrent calls `functools.cache` keeps the later result and drops the earlier one. There is no
    lock that a fork or a signal handler could leave held.
    """
    results: dict[tuple[int, ...], Result] = {}

    @wraps(make)
    def call_once(*given: int) -> Result:
        if given not in results:
            results.setdefault(given, make(*given))
        return results[given]

    return call_once


class _MethodDef(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("code", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


@memoize_once
def _method_definition(code: int) -> _MethodDef:
    return _MethodDef(b"program", code, METH_FASTCALL, b"Run with the addresses of slots.")


def make_builtin_function(code: int, program: int, keep: object) -> Any:
    """Return a Python function over native code with `self` set to an address; it keeps `keep`
    alive."""
    make = pythonapi.PyCFunction_NewEx
    make.restype = ctypes.py_object
    make.argtypes = [ctypes.c_void_p, ctypes.py_object, ctypes.py_object]
    return make(ctypes.addressof(_method_definition(code)), program, keep)


def define_entry_points(module: LLVMModule) -> None:
    """Define `entry` and `run`, which call functions of `phase_interpreter` and
    `control_interpreter`."""
    _define_start(module)
    _define_run_phases(module)
    _define_run(module)
    f = LLVMFunction(module, "entry", ["ptr", "ptr", "i64"], "ptr")
    self, args, count = f.params
    program = f.call("PyLong_AsVoidPtr", [self], "ptr")
    slots = f.load(f.offset(program, at.PROGRAM_SLOTS), "i64")
    answer = f.variable("ptr", 0)

    def refuse() -> None:
        raise_wrong_count(f)

    f.if_else(
        (count + 1).is_("eq", slots),
        lambda: _read_addresses(f, program, args, count, answer),
        refuse,
    )
    f.ret(answer.get())


def _read_addresses(
    f: LLVMFunction, program: LLVMValue, args: LLVMValue, count: LLVMValue, result: StackVariable
) -> None:
    """Read the addresses and run the program, unless one of them is not an integer."""
    bases = f.emit(f"alloca i64, i64 {count + 1}, align 64", "ptr")
    good = f.variable("i1", 1)
    with f.loop(0, count) as k:
        given = f.load(f.offset(args, k, "ptr"), "ptr")
        base = f.call("PyLong_AsVoidPtr", [given], "ptr")
        f.store(base, f.offset(bases, k + 1, "ptr"))
        with (
            f.when(base.is_("eq", 0)),
            f.when(f.call("PyErr_Occurred", [], "ptr").is_("ne", 0)),
        ):
            good.set(0)
    with f.when(good.get()), f.when(f.call("run", [program, bases], "i1")):
        none = python_object(f, "none")
        f.call("Py_IncRef", [none])
        result.set(none)


def _define_start(module: LLVMModule) -> None:
    """Define `start(control, flags) -> i1`: start the workers if the program can use them."""
    f = LLVMFunction(module, "start", ["ptr", "i64"], "i1", "nounwind", internal=True)
    control, flags = f.params
    good = f.variable("i1", 1)
    missing = f.load(f.offset(control, at.STARTED), "i64").is_("eq", 0)
    with f.when((flags & at.FLAG_PARALLEL).is_("ne", 0) & missing):
        starter = f.load(f.offset(control, at.STARTER), "ptr")
        answer = f.call("PyObject_CallNoArgs", [starter], "ptr")

        def mark_failed() -> None:
            good.set(0)

        f.if_else(answer.is_("eq", 0), mark_failed, lambda: _drop_reference(f, answer))
    f.ret(good.get())


def _drop_reference(f: LLVMFunction, value: LLVMValue) -> None:
    f.call("Py_DecRef", [value])


def _define_run(module: LLVMModule) -> None:
    """Define `run(program, bases) -> i1`: run a program; false if a signal handler raised."""
    f = LLVMFunction(module, "run", ["ptr", "ptr"], "i1")
    program, bases = f.params
    flags = f.load(f.offset(program, at.PROGRAM_FLAGS), "i64")
    good = f.variable("i1")
    f.if_else(
        (flags & at.FLAG_INSTRUCTIONS).is_("ne", 0),
        lambda: good.set(f.call("drive", [program, bases], "i1")),
        lambda: good.set(f.call("run_phases", [program, bases], "i1")),
    )
    f.ret(good.get())


def _define_run_phases(module: LLVMModule) -> None:
    """Define `run_phases(program, bases) -> i1`: run all phases of a table."""
    f = LLVMFunction(module, "run_phases", ["ptr", "ptr"], "i1", "nounwind", internal=True)
    program, bases = f.params
    control = f.load(f.offset(program, at.PROGRAM_CONTROL), "ptr")
    table = f.load(f.offset(program, at.PROGRAM_TABLE), "ptr")
    entries = f.load(f.offset(program, at.PROGRAM_ENTRIES), "i64")
    flags = f.load(f.offset(program, at.PROGRAM_FLAGS), "i64")
    releases = (flags & at.FLAG_RELEASE_GIL).is_("ne", 0)
    row = f.variable("i64", 0)
    thread = f.variable("ptr", 0)
    good = f.variable("i1", f.call("start", [control, flags], "i1"))
    scratch = f.load(f.offset(control, at.SCRATCH), "ptr")
    others = f.load(f.offset(control, at.CALLERS_SCRATCH), "ptr")
    with f.while_(lambda: row.get().is_("ult", entries) & good.get()):
        with f.when(releases):
            thread.set(f.call("PyEval_SaveThread", [], "ptr"))
        bit = f.call("acquire", [control, flags], "i64")
        lane = f.select(bit.is_("eq", 0), bit, bit + (at.MAX_WORKERS - 1))
        owns = bit.is_("eq", 0)
        f.store(
            f.select(owns, scratch, f.offset(others, (bit - 1) * at.SCRATCH_BYTES_PER_WORKER)),
            bases,
        )
        args = [control, table, row.get(), entries, bases, lane]
        row.set(f.call("interpret", args, "i64"))
        f.call("release", [control, bit])
        with f.when(releases):
            f.call("PyEval_RestoreThread", [thread.get()])
        with (
            f.when(row.get().is_("ult", entries)),
            f.when(f.call("PyErr_CheckSignals", [], "i32").is_("ne", 0)),
        ):
            good.set(0)
    f.ret(good.get())
