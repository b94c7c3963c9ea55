"""Many rounds of one program in one call of machine code.

    rounds = looper(code, enter, length, backwards, rows, swaps, cost)
    rounds(*addresses)

Between rounds some slots move on: those of `rows` show the next row of what they are rows of, and
the two of each pair in `swaps` change places, so that what was written is read. A loop of short
rounds keeps the GIL, but for a moment every 5 ms, in which Python's signal handlers get their turn
too.
"""

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from shardir.backends.cpu.native.llvm.text import Function, Module, Value, Variable
from shardir.backends.cpu.native.runtime import control as at
from shardir.backends.cpu.native.runtime.entry import function

HEADER = ("program", "length", "first", "by", "rows", "row_table", "swaps", "swap_table", "every")
"""The words behind `self`; rounds are numbered from `first`, `by` one up or down."""
ROW_WORDS = 4
"""(slot, slot of what it shows rows of, offset of the first row, bytes between rows)"""
PATIENCE = 5_000_000.0
"""Nanoseconds after which others get their turn."""


def looper(
    code: int,
    enter: Any,
    length: int,
    backwards: bool,
    rows: Sequence[tuple[int, int, int, int]],
    swaps: Sequence[tuple[int, int]],
    cost: float,
) -> Callable[..., None]:
    """A function that runs what `load` gave so many times; `code` is that of `loop`.

    A round is estimated to take `cost` nanoseconds. The function takes the addresses of slots as
    they are before the first round.
    """
    tables = [
        (ctypes.c_int64 * max(1, width * len(table)))(*(word for row in table for word in row))
        for table, width in ((rows, ROW_WORDS), (swaps, 2))
    ]
    row_table, swap_table = map(ctypes.addressof, tables)
    first, by = (length - 1, -1) if backwards else (0, 1)
    every = max(1, min(int(PATIENCE / max(cost, 50.0)), 1 << 20))
    words = (
        enter.__self__, length, first, by, len(rows), row_table, len(swaps), swap_table, every,
    )  # fmt: skip
    header = (ctypes.c_int64 * len(words))(*words)
    made: Callable[..., None] = function(code, ctypes.addressof(header), (enter, tables, header))
    return made


def define_loop(module: Module) -> None:
    """Define `loop`, which calls `run` of the same module."""
    f = Function(module, "loop", ["ptr", "ptr", "i64"], "ptr")
    self, args, count = f.params
    header = f.call("PyLong_AsVoidPtr", [self], "ptr")
    program = f.load(header, "ptr")
    slots = f.load(f.offset(program, at.PROGRAM_SLOTS), "i64")
    answer = f.variable("ptr", 0)

    def refuse() -> None:
        kind, words = Value("@shardir_type_error", "ptr", f), Value("@wrong_count", "ptr", f)
        f.call("PyErr_SetString", [kind, words])

    f.choose(
        (count + 1).is_("eq", slots),
        lambda: _rounds(f, header, program, args, count, answer),
        refuse,
    )
    f.leave(answer.get())


def _rounds(
    f: Function, header: Value, program: Value, args: Value, count: Value, answer: Variable
) -> None:
    def word(name: str, type: str = "i64") -> Value:
        return f.load(f.offset(header, 8 * HEADER.index(name)), type)

    bases = f.emit(f"alloca i64, i64 {count + 1}, align 64", "ptr")
    good = f.variable("i1", 1)
    with f.loop(0, count) as k:
        base = f.call("PyLong_AsVoidPtr", [f.load(f.offset(args, k, "ptr"), "ptr")], "ptr")
        f.store(base, f.offset(bases, k + 1, "ptr"))
        with (
            f.when(base.is_("eq", 0)),
            f.when(f.call("PyErr_Occurred", [], "ptr").is_("ne", 0)),
        ):
            good.set(0)
    rows, table = word("rows"), word("row_table", "ptr")
    starts = f.emit(f"alloca i64, i64 {rows + 1}, align 64", "ptr")
    with f.loop(0, rows) as k:
        row = f.offset(table, k * (8 * ROW_WORDS))
        source = f.load(f.offset(row, 8), "i64")
        base = f.load(f.offset(bases, source, "i64"), "i64")
        f.store(base + f.load(f.offset(row, 16), "i64"), f.offset(starts, k, "i64"))
    number, index = f.variable("i64", 0), f.variable("i64", word("first"))
    left = f.variable("i64", word("every"))
    with f.while_(lambda: number.get().is_("slt", word("length")) & good.get()):
        with f.loop(0, rows) as k:
            row = f.offset(table, k * (8 * ROW_WORDS))
            moved = index.get() * f.load(f.offset(row, 24), "i64")
            slot = f.load(row, "i64")
            start = f.load(f.offset(starts, k, "i64"), "i64")
            f.store(start + moved, f.offset(bases, slot, "i64"))
        good.set(f.call("run", [program, bases], "i1"))
        _swap(f, bases, word("swaps"), word("swap_table", "ptr"))
        number.set(number.get() + 1)
        index.set(index.get() + word("by"))
        left.set(left.get() - 1)
        with f.when(left.get().is_("eq", 0) & good.get()):
            left.set(word("every"))
            f.call("PyEval_RestoreThread", [f.call("PyEval_SaveThread", [], "ptr")])
            good.set(f.call("PyErr_CheckSignals", [], "i32").is_("eq", 0))
    with f.when(good.get()):
        none = Value("@shardir_none", "ptr", f)
        f.call("Py_IncRef", [none])
        answer.set(none)


def _swap(f: Function, bases: Value, count: Value, table: Value) -> None:
    with f.loop(0, count) as k:
        pair = f.offset(table, k * 16)
        a, b = (f.offset(bases, f.load(f.offset(pair, 8 * side), "i64"), "i64") for side in (0, 1))
        one, other = f.load(a, "i64"), f.load(b, "i64")
        f.store(other, a)
        f.store(one, b)
