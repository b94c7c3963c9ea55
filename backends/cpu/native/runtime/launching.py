"""From arrays to arrays in one call of machine code.

`load` gives a function of addresses. Before it, somebody has to read the addresses of arrays, and
after it to make arrays of results; in Python that takes longer than a small program. A launcher
does both around the same table of phases:

    launch = launcher(run, kind, slots, ...)
    results = launch(arrays, *blocks)   # a list; None: these are not arrays in one piece each

A result of the program is a storage in one of the blocks, and an array that holds it.
"""

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

from shardir.backends.cpu.native.llvm.text import Function, Module, Value, Variable
from shardir.backends.cpu.native.runtime import control as at
from shardir.backends.cpu.native.runtime.entry import function
from shardir.backends.cpu.native.runtime.memory import Block
from shardir.backends.cpu.native.runtime.objects import TYPE, offsets
from shardir.backends.storage import Storage

Launch = Callable[..., list[Any] | None]

ARRAY_SLOTS = ("signature", "sharding", "held", "_parts", "_whole", "_gone")
STORAGE_SLOTS = ("address", "owner", "shape", "dtype", "_array")
BLOCK_SLOTS = ("address",)

FACTS = ("array", *ARRAY_SLOTS, "storage", *(f"storage.{name}" for name in STORAGE_SLOTS), "block")
"""The words that say what arrays, storages and blocks are: types, and offsets of slots."""
HEADER = (
    "program", "facts", "template", "arguments", "argument_slots", "placed", "places", "results",
    "made", "blocks",
)  # fmt: skip
"""The words of a launch: counts, and addresses of tables."""
PLACE_WORDS = 3
"""(slot, block, offset)"""
RESULT_WORDS = 6
"""(block, offset, shape, type, signature, sharding)"""

SYMBOLS = (
    "PyLong_FromVoidPtr",
    "PyType_GenericAlloc",
    "PyList_New",
    "PyList_Size",
    "PyList_GetItem",
    "PyList_SetItem",
)


class Result(NamedTuple):
    """A result: where it lies, and what its array is."""

    block: int
    offset: int
    shape: tuple[int, ...]
    dtype: Any
    signature: Any
    sharding: Any


@cache
def _facts(kind: type) -> ctypes.Array[ctypes.c_int64] | None:
    """The facts about a class of arrays; kept for ever."""
    array = offsets(object.__new__(kind), ARRAY_SLOTS)
    storage = offsets(object.__new__(Storage), STORAGE_SLOTS)
    block = offsets(Block(0, 0, []), BLOCK_SLOTS)
    if array is None or storage is None or block is None:
        return None
    words = (id(kind), *array, id(Storage), *storage, *block)
    return (ctypes.c_int64 * len(words))(*words)


def launcher(
    code: int,
    program: int,
    kind: type,
    template: Sequence[int],
    arguments: Sequence[int],
    places: Sequence[tuple[int, int, int]],
    results: Sequence[Result],
    keep: object,
) -> Launch | None:
    """A function that runs the program at an address on arrays of a class; `None`: not here.

    `template` has the addresses of slots that never change, `arguments` the slot of each argument,
    `places` (slot, block, offset) of what lies in the blocks of a call. `code` is that of
    `launch`; `keep` lives as long as the function.
    """
    facts = _facts(kind)
    if facts is None:
        return None
    blocks = 1 + max([block for _, block, _ in places], default=-1)
    made = [
        (r.block, r.offset, id(r.shape), id(r.dtype), id(r.signature), id(r.sharding))
        for r in results
    ]
    tables = [_words(each) for each in (template, arguments, _flat(places), _flat(made))]
    bases, slots, placed, written = map(ctypes.addressof, tables)
    header = _words(
        [program, ctypes.addressof(facts), bases, len(arguments), slots, len(places), placed,
         len(results), written, blocks]
    )  # fmt: skip
    held = (keep, facts, tables, header, tuple(results))
    made_function: Launch = function(code, ctypes.addressof(header), held)
    return made_function


def _words(numbers: Sequence[int]) -> ctypes.Array[ctypes.c_int64]:
    return (ctypes.c_int64 * max(1, len(numbers)))(*numbers)


def _flat(rows: Sequence[tuple[int, ...]]) -> list[int]:
    return [word for row in rows for word in row]


def define_launch(module: Module) -> None:
    """Define `launch`, which calls `run` of the same module."""
    for name, result, params in (
        ("PyLong_FromVoidPtr", "ptr", ["ptr"]),
        ("PyType_GenericAlloc", "ptr", ["ptr", "i64"]),
        ("PyList_New", "ptr", ["i64"]),
        ("PyList_Size", "i64", ["ptr"]),
        ("PyList_GetItem", "ptr", ["ptr", "i64"]),
        ("PyList_SetItem", "i32", ["ptr", "i64", "ptr"]),
    ):
        module.declare(name, result, params)
    module.declarations.setdefault("@shardir_empty_text = external global i8")
    f = Function(module, "launch", ["ptr", "ptr", "i64"], "ptr")
    self, args, count = f.params
    answer = f.variable("ptr", 0)
    launch = _Launch(f, f.call("PyLong_AsVoidPtr", [self], "ptr"), args)
    wrong = count.is_("ne", launch.word("blocks") + 1)

    def refuse() -> None:
        kind, words = Value("@shardir_type_error", "ptr", f), Value("@wrong_count", "ptr", f)
        f.call("PyErr_SetString", [kind, words])

    f.choose(wrong, refuse, lambda: launch.go(answer))
    f.leave(answer.get())


class _Launch:
    """The instructions of a launch."""

    def __init__(self, f: Function, header: Value, args: Value) -> None:
        self.f, self.args = f, args
        self._header = header
        self._facts = self.pointer("facts")
        self._none = Value("@shardir_none", "ptr", f)
        self._program = self.pointer("program")

    def word(self, name: str) -> Value:
        return self.f.load(self.f.offset(self._header, 8 * HEADER.index(name)), "i64")

    def pointer(self, name: str) -> Value:
        return self.f.load(self.f.offset(self._header, 8 * HEADER.index(name)), "ptr")

    def fact(self, name: str, type: str = "i64") -> Value:
        return self.f.load(self.f.offset(self._facts, 8 * FACTS.index(name)), type)

    def go(self, answer: Variable) -> None:
        """Run, unless an argument is no array in one piece."""
        f = self.f
        slots = f.load(f.offset(self._program, at.PROGRAM_SLOTS), "i64")
        count = self.word("arguments")
        bases = f.emit(f"alloca i64, i64 {slots}, align 64", "ptr")
        held = f.emit(f"alloca ptr, i64 {count + 1}, align 64", "ptr")
        template = self.pointer("template")
        with f.loop(0, slots) as k:
            word = f.load(f.offset(template, k, "i64"), "i64")
            f.store(word, f.offset(bases, k, "i64"))
        leaves = f.load(self.args, "ptr")
        good = f.variable("i1", f.call("PyList_Size", [leaves], "i64").is_("eq", count))
        slot_table, array, storage = (
            self.pointer("argument_slots"), self.fact("array", "ptr"), self.fact("storage", "ptr"),
        )  # fmt: skip
        number = f.variable("i64", 0)
        with f.while_(lambda: number.get().is_("slt", count) & good.get()):
            leaf = f.call("PyList_GetItem", [leaves, number.get()], "ptr")
            good.set(self._type(leaf).is_("eq", array))
            with f.when(good.get()):
                memory = f.load(f.offset(leaf, self.fact("held")), "ptr")
                good.set(self._type(memory).is_("eq", storage))
                f.store(memory, f.offset(held, number.get(), "ptr"))
                with f.when(good.get()):
                    where = self._address(memory, "storage.address")
                    slot = f.load(f.offset(slot_table, number.get(), "i64"), "i64")
                    f.store(where, f.offset(bases, slot, "ptr"))
            number.set(number.get() + 1)

        def nothing() -> None:
            f.call("Py_IncRef", [self._none])
            answer.set(self._none)

        f.choose(good.get(), lambda: self._run(bases, held, count, answer), nothing)

    def _run(self, bases: Value, held: Value, count: Value, answer: Variable) -> None:
        f = self.f
        # Somebody may delete an array meanwhile.
        with f.loop(0, count) as k:
            f.call("Py_IncRef", [f.load(f.offset(held, k, "ptr"), "ptr")])
        places = self.pointer("places")
        with f.loop(0, self.word("placed")) as k:
            row = f.offset(places, k * (8 * PLACE_WORDS))
            where = self._place(row, 8)
            f.store(where, f.offset(bases, f.load(row, "i64"), "ptr"))
        done = f.call("run", [self._program, bases], "i1")
        with f.loop(0, count) as k:
            f.call("Py_DecRef", [f.load(f.offset(held, k, "ptr"), "ptr")])
        with f.when(done):
            answer.set(self._results())

    def _place(self, row: Value, start: int) -> Value:
        """The address that a block and an offset, `start` bytes into a row, stand for."""
        f = self.f
        block = self._block(row, start)
        offset = f.load(f.offset(row, start + 8), "i64")
        return f.offset(self._address(block, "block"), offset)

    def _block(self, row: Value, start: int) -> Value:
        f = self.f
        number = f.load(f.offset(row, start), "i64")
        return f.load(f.offset(self.args, number + 1, "ptr"), "ptr")

    def _results(self) -> Value:
        """A list of arrays, 0 where there is no memory for them."""
        f = self.f
        count, table = self.word("results"), self.pointer("made")
        made = f.variable("ptr", f.call("PyList_New", [count], "ptr"))
        k = f.variable("i64", 0)
        with f.while_(lambda: k.get().is_("slt", count) & made.get().is_("ne", 0)):
            row = f.offset(table, k.get() * (8 * RESULT_WORDS))
            array = self._array(row)

            def keep(array: Value = array) -> None:
                f.call("PyList_SetItem", [made.get(), k.get(), array], "i32")

            def drop() -> None:
                f.call("Py_DecRef", [made.get()])
                made.set(f.value(0, "ptr"))

            f.choose(array.is_("ne", 0), keep, drop)
            k.set(k.get() + 1)
        return made.get()

    def _array(self, row: Value) -> Value:
        """A new array, 0 where there is no memory."""
        f = self.f
        zero = f.value(0, "i64")
        storage = f.call("PyType_GenericAlloc", [self.fact("storage", "ptr"), zero], "ptr")
        made = f.variable("ptr", 0)
        with f.when(storage.is_("ne", 0)):
            block = self._block(row, 0)
            address = f.call("PyLong_FromVoidPtr", [self._place(row, 0)], "ptr")
            array = f.call("PyType_GenericAlloc", [self.fact("array", "ptr"), zero], "ptr")
            full = array.is_("ne", 0) & address.is_("ne", 0)

            def fill() -> None:
                shape, dtype, signature, sharding = (
                    f.load(f.offset(row, 8 * word), "ptr") for word in range(2, RESULT_WORDS)
                )
                f.store(address, f.offset(storage, self.fact("storage.address")))
                for name, given in (
                    ("owner", block), ("shape", shape), ("dtype", dtype), ("_array", self._none),
                ):  # fmt: skip
                    self._set(storage, f"storage.{name}", given)
                f.store(storage, f.offset(array, self.fact("held")))
                empty = Value("@shardir_empty_text", "ptr", f)
                for name, given in (
                    ("signature", signature), ("sharding", sharding), ("_parts", self._none),
                    ("_whole", self._none), ("_gone", empty),
                ):  # fmt: skip
                    self._set(array, name, given)
                made.set(array)

            def drop() -> None:
                f.call("Py_DecRef", [storage])
                for other in (array, address):
                    with f.when(other.is_("ne", 0)):
                        f.call("Py_DecRef", [other])

            f.choose(full, fill, drop)
        return made.get()

    def _set(self, target: Value, name: str, given: Value) -> None:
        self.f.call("Py_IncRef", [given])
        self.f.store(given, self.f.offset(target, self.fact(name)))

    def _type(self, thing: Value) -> Value:
        return self.f.load(self.f.offset(thing, TYPE), "ptr")

    def _address(self, thing: Value, name: str) -> Value:
        number = self.f.load(self.f.offset(thing, self.fact(name)), "ptr")
        return self.f.call("PyLong_AsVoidPtr", [number], "ptr")
