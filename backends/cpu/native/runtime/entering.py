"""Arrays of NumPy that become arrays of ours on the way into a program.

    enter(facts, entry, array) -> a storage with its numbers, 0 where there is none

What a program only reads it reads where NumPy has it. Numbers of 64 bits that become narrower ones,
truth values, which may have any bytes there, and numbers that a result shows as they are, are
copied into a block of the pool first: into NumPy's memory somebody may write later. Integers that
do not fit make no storage.
"""

import ctypes
from typing import Any, NamedTuple

import numpy as np

from shardir.backends.cpu.native.llvm.text import Function, Module, Value, vector
from shardir.backends.cpu.native.runtime import foreign, memory
from shardir.backends.cpu.native.runtime.facts import SIZE_WORDS, Part
from shardir.backends.cpu.native.runtime.references import drop

KINDS = ("same", "truth", "float", "signed", "unsigned")
"""What is done to numbers: nothing, every byte but 0 becomes 1, or they become half as wide."""
ENTRY = ("shape", "dtype", "kind", "count")
"""The words of an entry behind those of `facts.SIZE_WORDS`: objects, what is done, and to how many
numbers, or bytes that stay the same."""
LANES, OCTETS = 16, 64
"""Numbers, and bytes, that are done at once."""

_NARROWED = {
    ("f", 8): ("float", 1), ("c", 16): ("float", 2), ("i", 8): ("signed", 1),
    ("u", 8): ("unsigned", 1),
}  # fmt: skip


class Entry(NamedTuple):
    """An array of NumPy's: its shape and element type, and the one that it gets."""

    shape: tuple[int, ...]
    given: np.dtype[Any]
    kept: np.dtype[Any]


def entry_words(entry: Entry) -> tuple[ctypes.Array[ctypes.c_int64], object] | None:
    """An entry for machine code, and what has to live for it; `None`: Python does the work, which
    is that of large arrays, too."""
    size = int(np.prod(entry.shape, dtype=np.int64))
    nbytes = size * entry.kept.itemsize
    if entry.given == entry.kept == np.bool_:
        kind, count = "truth", size
    elif entry.given == entry.kept:
        kind, count = "same", nbytes
    else:
        kind, each = _NARROWED.get((entry.given.kind, entry.given.itemsize), ("", 0))
        count = size * each
        if not kind or entry.kept != np.dtype(f"{entry.given.kind}{entry.given.itemsize // 2}"):
            return None
    home = memory.POOL.home(nbytes)
    if not home:
        return None
    more = memory.allocate
    row = (
        home, nbytes, id(nbytes), id(more),
        id(entry.shape), id(entry.kept), KINDS.index(kind), count,
    )  # fmt: skip
    return (ctypes.c_int64 * len(row))(*row), (entry, nbytes, more)


def define_enter(module: Module) -> None:
    """Define `enter`, which calls `pop` of the same module."""
    _define_copy(module)
    _define_truth(module)
    _define_narrowed(module, "float", "double", "float")
    _define_narrowed(module, "signed", "i64", "i32")
    _define_narrowed(module, "unsigned", "i64", "i32")
    _Entering(module)


class _Entering(Part):
    """The instructions of `enter`."""

    def __init__(self, module: Module) -> None:
        params = ["ptr", "ptr", "ptr"]
        f = Function(module, "enter", params, "ptr", "nounwind noinline", internal=True)
        facts, entry, array = f.params
        super().__init__(f, facts)
        shape, dtype = (self._word(entry, name, "ptr") for name in ("shape", "dtype"))
        storage = f.variable("ptr", 0)
        block = self.new_block(entry)
        with f.when(block.is_("ne", 0)):
            start = self.start(block)
            with f.when(self._copied(entry, array, start)):
                storage.set(self.new_storage(start, block, shape, dtype))
            drop(f, block)
        f.leave(storage.get())

    def _word(self, entry: Value, name: str, type: str = "i64") -> Value:
        return self.f.load(self.f.offset(entry, 8 * (SIZE_WORDS + ENTRY.index(name))), type)

    def _copied(self, entry: Value, array: Value, target: Value) -> Value:
        """Write the numbers; whether all of them fit."""
        f = self.f
        source = f.load(f.offset(array, foreign.DATA), "ptr")
        kind, count = (self._word(entry, name) for name in ("kind", "count"))
        good = f.variable("i1", 0)
        for number, name in enumerate(KINDS):
            with f.when(kind.is_("eq", number)):
                good.set(f.call(f"enter_{name}", [target, source, count], "i1"))
        return good.get()


def _define_copy(module: Module) -> None:
    f = Function(module, "enter_same", ["ptr", "ptr", "i64"], "i1", "nounwind", internal=True)
    target, source, count = f.params
    module.declare("llvm.memcpy.p0.p0.i64", "void", ["ptr", "ptr", "i64", "i1 immarg"])
    f.do(f"call void @llvm.memcpy.p0.p0.i64(ptr {target}, ptr {source}, i64 {count}, i1 false)")
    f.leave(f.value(1, "i1"))


def _define_truth(module: Module) -> None:
    """`enter_truth(target, source, count) -> i1`: 1 for every byte but 0."""
    f = Function(module, "enter_truth", ["ptr", "ptr", "i64"], "i1", "nounwind", internal=True)
    target, source, count = f.params

    def step(k: Value, lanes: int) -> None:
        given = f.load(f.offset(source, k), vector("i8", lanes), 1)
        f.store(given.is_("ne", 0).to(vector("i8", lanes), "zext"), f.offset(target, k), 1)

    whole = count & -OCTETS
    with f.loop(0, whole, OCTETS) as k:
        step(k, OCTETS)
    with f.loop(whole, count) as k:
        step(k, 1)
    f.leave(f.value(1, "i1"))


def _define_narrowed(module: Module, name: str, wide: str, narrow: str) -> None:
    """`enter_NAME(target, source, count) -> i1`: numbers half as wide; whether all fit."""
    params = ["ptr", "ptr", "i64"]
    f = Function(module, f"enter_{name}", params, "i1", "nounwind", internal=True)
    target, source, count = f.params
    many = vector("i64", LANES)
    lost, lost_after = f.variable(many, 0), f.variable("i64", 0)

    def step(k: Value, lanes: int, lost: Any) -> None:
        given = f.load(f.offset(source, k, wide), vector(wide, lanes), 8)
        shorter = given.to(vector(narrow, lanes), "fptrunc" if wide == "double" else "trunc")
        f.store(shorter, f.offset(target, k, narrow), 4)
        if wide == "i64":
            how = "sext" if name == "signed" else "zext"
            lost.set(lost.get() | (shorter.to(vector(wide, lanes), how) ^ given))

    whole = count & -LANES
    with f.loop(0, whole, LANES) as k:
        step(k, LANES, lost)
    with f.loop(whole, count) as k:
        step(k, 1, lost_after)
    any_lost = f.intrinsic("vector.reduce.or", lost.get(), result="i64") | lost_after.get()
    f.leave(any_lost.is_("eq", 0))
