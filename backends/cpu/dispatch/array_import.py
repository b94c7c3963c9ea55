"""Import NumPy arrays as arrays of this library on their way into a program.

    enter(facts, entry, array) -> a storage with its elements, 0 if there is none

A program reads NumPy's memory in place if it only reads it. 64-bit elements that are narrowed, bool
arrays, whose bytes may have any value, and elements that a result aliases are copied into a block
of the pool first, because other code may write into NumPy's memory later. Integers that do not fit
produce no storage.
"""

import ctypes
from typing import Any, NamedTuple

import numpy as np

from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMModule, LLVMValue, vector_type
from shardir.backends.cpu.dispatch import numpy_layout
from shardir.backends.cpu.dispatch.python_api import emit_decref
from shardir.backends.cpu.dispatch.type_offsets import SIZE_ROW_WORDS, ObjectAccess
from shardir.backends.cpu.threads import memory

IMPORT_KINDS = ("same", "truth", "float", "signed", "unsigned")
"""The conversion of elements: none, nonzero bytes to 1, or to half their width."""
IMPORT_WORDS = ("shape", "dtype", "kind", "count")
"""The words of an import after those of the block size (`SIZE_ROW_WORDS`): shape and
dtype as objects, the conversion, and the number of elements, or of bytes that stay the same."""
ELEMENTS_PER_VECTOR, BYTES_PER_VECTOR = 16, 64
"""Elements, and bytes, that are converted in one step."""

_NARROWING_IMPORTS = {
    ("f", 8): ("float", 1), ("c", 16): ("float", 2), ("i", 8): ("signed", 1),
    ("u", 8): ("unsigned", 1),
}  # fmt: skip


class ArrayImport(NamedTuple):
    """A NumPy array: its shape, its element type, and the element type after import."""

    shape: tuple[int, ...]
    source_dtype: np.dtype[Any]
    dtype: np.dtype[Any]


def import_words(entry: ArrayImport) -> tuple[ctypes.Array[ctypes.c_int64], object] | None:
    """Return the words of an import, and objects to keep alive; `None` leaves the import to Python.

    Python also imports large arrays.
    """
    size = int(np.prod(entry.shape, dtype=np.int64))
    nbytes = size * entry.dtype.itemsize
    if entry.source_dtype == entry.dtype == np.bool_:
        kind, count = "truth", size
    elif entry.source_dtype == entry.dtype:
        kind, count = "same", nbytes
    else:
        kind, each = _NARROWING_IMPORTS.get(
            (entry.source_dtype.kind, entry.source_dtype.itemsize), ("", 0)
        )
        count = size * each
        if not kind or entry.dtype != np.dtype(
            f"{entry.source_dtype.kind}{entry.source_dtype.itemsize // 2}"
        ):
            return None
    home = memory.MEMORY_POOL.free_list_address(nbytes)
    if not home:
        return None
    more = memory.allocate
    row = (
        home, nbytes, id(nbytes), id(more),
        id(entry.shape), id(entry.dtype), IMPORT_KINDS.index(kind), count,
    )  # fmt: skip
    return (ctypes.c_int64 * len(row))(*row), (entry, nbytes, more)


def define_array_import(module: LLVMModule) -> None:
    """Define `enter`, which calls `pop` of the same module."""
    _define_same_import(module)
    _define_bool_import(module)
    _define_narrowing_import(module, "float", "double", "float")
    _define_narrowing_import(module, "signed", "i64", "i32")
    _define_narrowing_import(module, "unsigned", "i64", "i32")
    _ImportFunction(module)


class _ImportFunction(ObjectAccess):
    """The instructions of `enter`."""

    def __init__(self, module: LLVMModule) -> None:
        params = ["ptr", "ptr", "ptr"]
        f = LLVMFunction(module, "enter", params, "ptr", "nounwind noinline", internal=True)
        facts, entry, array = f.params
        super().__init__(f, facts)
        shape, dtype = (self._word(entry, name, "ptr") for name in ("shape", "dtype"))
        storage = f.variable("ptr", 0)
        block = self.new_block(entry)
        with f.when(block.is_("ne", 0)):
            start = self.block_start(block)
            with f.when(self._copy_elements(entry, array, start)):
                storage.set(self.new_storage(start, block, shape, dtype))
            emit_decref(f, block)
        f.ret(storage.get())

    def _word(self, entry: LLVMValue, name: str, type: str = "i64") -> LLVMValue:
        return self.f.load(
            self.f.offset(entry, 8 * (SIZE_ROW_WORDS + IMPORT_WORDS.index(name))), type
        )

    def _copy_elements(self, entry: LLVMValue, array: LLVMValue, target: LLVMValue) -> LLVMValue:
        """Write the converted elements; return whether all of them fit."""
        f = self.f
        source = f.load(f.offset(array, numpy_layout.DATA_OFFSET), "ptr")
        kind, count = (self._word(entry, name) for name in ("kind", "count"))
        good = f.variable("i1", 0)
        for number, name in enumerate(IMPORT_KINDS):
            with f.when(kind.is_("eq", number)):
                good.set(f.call(f"enter_{name}", [target, source, count], "i1"))
        return good.get()


def _define_same_import(module: LLVMModule) -> None:
    f = LLVMFunction(module, "enter_same", ["ptr", "ptr", "i64"], "i1", "nounwind", internal=True)
    target, source, count = f.params
    module.declare("llvm.memcpy.p0.p0.i64", "void", ["ptr", "ptr", "i64", "i1 immarg"])
    f.do(f"call void @llvm.memcpy.p0.p0.i64(ptr {target}, ptr {source}, i64 {count}, i1 false)")
    f.ret(f.value(1, "i1"))


def _define_bool_import(module: LLVMModule) -> None:
    """Define `enter_truth(target, source, count) -> i1`: 1 for every nonzero byte."""
    f = LLVMFunction(module, "enter_truth", ["ptr", "ptr", "i64"], "i1", "nounwind", internal=True)
    target, source, count = f.params

    def step(k: LLVMValue, lanes: int) -> None:
        given = f.load(f.offset(source, k), vector_type("i8", lanes), 1)
        f.store(given.is_("ne", 0).to(vector_type("i8", lanes), "zext"), f.offset(target, k), 1)

    whole = count & -BYTES_PER_VECTOR
    with f.loop(0, whole, BYTES_PER_VECTOR) as k:
        step(k, BYTES_PER_VECTOR)
    with f.loop(whole, count) as k:
        step(k, 1)
    f.ret(f.value(1, "i1"))


def _define_narrowing_import(module: LLVMModule, name: str, wide: str, narrow: str) -> None:
    """Define `enter_NAME(target, source, count) -> i1`: elements of half the width; whether all
    fit."""
    params = ["ptr", "ptr", "i64"]
    f = LLVMFunction(module, f"enter_{name}", params, "i1", "nounwind", internal=True)
    target, source, count = f.params
    lanes_type = vector_type("i64", ELEMENTS_PER_VECTOR)
    lost, lost_after = f.variable(lanes_type, 0), f.variable("i64", 0)

    def step(k: LLVMValue, lanes: int, lost: Any) -> None:
        given = f.load(f.offset(source, k, wide), vector_type(wide, lanes), 8)
        shorter = given.to(vector_type(narrow, lanes), "fptrunc" if wide == "double" else "trunc")
        f.store(shorter, f.offset(target, k, narrow), 4)
        if wide == "i64":
            how = "sext" if name == "signed" else "zext"
            lost.set(lost.get() | (shorter.to(vector_type(wide, lanes), how) ^ given))

    whole = count & -ELEMENTS_PER_VECTOR
    with f.loop(0, whole, ELEMENTS_PER_VECTOR) as k:
        step(k, ELEMENTS_PER_VECTOR, lost)
    with f.loop(whole, count) as k:
        step(k, 1, lost_after)
    any_lost = f.intrinsic("vector.reduce.or", lost.get(), result="i64") | lost_after.get()
    f.ret(any_lost.is_("eq", 0))
