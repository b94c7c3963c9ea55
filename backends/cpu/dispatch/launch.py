"""Launch a program on arrays in one native call.

`load` returns a function of addresses. Around it, the addresses of arrays must be read and result
arrays made; in Python that takes longer than a small program. A launch does both around the same
table of phases:

    launch = make_launch(code, run, kind, slots, ...)
    results = launch(arrays)            # a list; None: an array has several storages
    results = launch(arrays, *blocks)   # in the given memory

A result of the program is an array with a storage in one of the blocks, or a part of an argument,
for which no code has to run.
"""

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from shardir.backends.cpu.codegen.compiler import NativeLibrary
from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMModule
from shardir.backends.cpu.dispatch import small_blocks as small
from shardir.backends.cpu.dispatch.array_import import ArrayImport, import_words
from shardir.backends.cpu.dispatch.entry_point import make_builtin_function
from shardir.backends.cpu.dispatch.invoke import launch_word
from shardir.backends.cpu.dispatch.memory_block import MemoryBlock
from shardir.backends.cpu.dispatch.object_layout import slot_offsets
from shardir.backends.cpu.dispatch.once import memoize_once
from shardir.backends.cpu.dispatch.python_api import emit_incref, python_object, raise_wrong_count
from shardir.backends.cpu.dispatch.scalar_arguments import ARGUMENT_KINDS
from shardir.backends.cpu.dispatch.type_offsets import ARRAY_SLOTS, BLOCK_SLOTS, STORAGE_SLOTS
from shardir.backends.cpu.threads import memory
from shardir.backends.storage import Storage

Launch = Callable[..., list[Any] | None]


class LaunchResult(NamedTuple):
    """A result: its block and offset, and the properties of its array."""

    block: int
    offset: int
    shape: tuple[int, ...]
    dtype: Any
    signature: Any
    sharding: Any
    part: bool = False


class LaunchArgument(NamedTuple):
    """An argument: the slot of its address (below 0: none), and the shape that its storage must
    have.

    With an `entry` it is a contiguous NumPy array that is imported, and that results may alias.
    With `truth` its readers treat any nonzero byte as true.
    """

    slot: int
    shape: tuple[int, ...] | None = None
    entry: ArrayImport | None = None
    truth: bool = False


@memoize_once
def _type_offsets(kind: type, retire: int, hand: int) -> ctypes.Array[ctypes.c_int64] | None:
    """Return the type offsets for a class of arrays; the result lives forever."""
    array = slot_offsets(object.__new__(kind), ARRAY_SLOTS)
    storage = slot_offsets(object.__new__(Storage), STORAGE_SLOTS)
    block = slot_offsets(MemoryBlock(0, 0, []), BLOCK_SLOTS)
    blocks = small.small_block_type(retire)
    if array is None or storage is None or block is None or blocks is None:
        return None
    memory.MEMORY_POOL.set_small_block_type(blocks, small.block_maker(hand))
    words = (id(kind), *array, id(Storage), *storage, *block, id(blocks))
    return (ctypes.c_int64 * len(words))(*words)


def make_launch(
    code: NativeLibrary,
    program: int,
    kind: type,
    template: Sequence[int],
    arguments: Sequence[LaunchArgument],
    places: Sequence[tuple[int, int, int]],
    sizes: Sequence[int],
    results: Sequence[LaunchResult],
    keep: object,
    zeros: bool = False,
) -> Launch | None:
    """Return a function that runs the program at an address on arrays of a class.

    `template` has the addresses of constant slots, `places` are (slot, block, offset) of buffers in
    the blocks of a call, whose `sizes` are bytes; the blocks hold zeros with `zeros`. `keep` lives
    as long as the function. Returns `None` if the object layout is unknown.
    """
    facts = _type_offsets(kind, code["retire"], code["hand"])
    if facts is None:
        return None
    shapes = [each.shape for each in arguments]
    entries = {k: import_words(each.entry) for k, each in enumerate(arguments) if each.entry}
    rows = []
    for k, each in enumerate(arguments):
        what, third = "array", 0 if each.shape is None else id(each.shape)
        if k in entries:
            made_entry = entries[k]
            if made_entry is None:
                return None
            what, third = "entering", ctypes.addressof(made_entry[0])
        rows.append((each.slot, ARGUMENT_KINDS.index(what), third, k))
    numbers = [*sizes]
    pool = memory.MEMORY_POOL
    home, fallback = (
        (pool.zeros_free_list_address, memory.allocate_zeros)
        if zeros
        else (pool.free_list_address, memory.allocate)
    )
    block_rows = [(home(size), size, id(size), id(fallback)) for size in numbers]
    if zeros and not all(row[0] for row in block_rows):
        return None
    result = [
        (r.block, r.offset, id(r.shape), id(r.dtype), id(r.signature), id(r.sharding), int(r.part))
        for r in results
    ]
    truths = [int(each.truth) for each in arguments]
    tables = [
        int64_array(each)
        for each in (
            template,
            flatten_rows(rows),
            flatten_rows(places),
            flatten_rows(result),
            flatten_rows(block_rows),
            truths,
        )
    ]
    bases, taken, placed, written, wanted, known = map(ctypes.addressof, tables)
    header = int64_array(
        [program, len(template), ctypes.addressof(facts), bases, len(arguments), taken,
         len(places), placed, len(results), written, len(sizes), wanted,
         known]
    )  # fmt: skip
    held = (keep, facts, tables, header, tuple(results), shapes, numbers, entries)
    made_function: Launch = make_builtin_function(code["launch"], ctypes.addressof(header), held)
    return made_function


def int64_array(numbers: Sequence[int]) -> ctypes.Array[ctypes.c_int64]:
    """Return integers as a contiguous array of int64."""
    return (ctypes.c_int64 * max(1, len(numbers)))(*numbers)


def flatten_rows(rows: Sequence[tuple[int, ...]]) -> list[int]:
    """Return the concatenation of rows."""
    return [word for row in rows for word in row]


def define_launch(module: LLVMModule) -> None:
    """Define `launch`, which calls `fly` of the same module."""
    f = LLVMFunction(module, "launch", ["ptr", "ptr", "i64"], "ptr")
    self, args, count = f.params
    answer = f.variable("ptr", 0)
    header = f.call("PyLong_AsVoidPtr", [self], "ptr")
    blocks = launch_word(f, header, "blocks")

    def refuse() -> None:
        raise_wrong_count(f)

    def go() -> None:
        given = f.select(count.is_("eq", 1), f.value(0, "ptr"), f.offset(args, 8))
        arguments = launch_word(f, header, "arguments")
        leaves = f.emit(f"alloca ptr, i64 {arguments + 1}, align 64", "ptr")
        listed = f.load(args, "ptr")
        fits = f.call("PyList_Size", [listed], "i64").is_("eq", arguments)

        def fly() -> None:
            with f.loop(0, arguments) as k:
                f.store(f.call("PyList_GetItem", [listed, k], "ptr"), f.offset(leaves, k, "ptr"))
            rows = launch_word(f, header, "rows", "ptr")
            several = f.value(0, "i1")
            answer.set(f.call("fly", [header, leaves, rows, arguments, given, several], "ptr"))

        def miss() -> None:
            none = python_object(f, "none")
            emit_incref(f, none)
            answer.set(none)

        f.if_else(fits, fly, miss)

    f.if_else(count.is_("eq", 1) | count.is_("eq", blocks + 1), go, refuse)
    f.ret(answer.get())
