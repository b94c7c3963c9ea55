"""Launches: run a program on arrays, in one native call where the native tier is installed.

`load_program` returns a function of addresses. A launch reads the addresses of arrays, allocates
memory, calls this function, and makes the result arrays:

    launch = make_launch(program, kind, template, ...)
    results = launch(arrays)            # a list; None: an array has several storages
    results = launch(arrays, *blocks)   # in the given memory

A result of the program is an array with a storage in one of the blocks, or a part of an argument,
for which no code has to run.
"""

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from shardir.backends.base import Launch
from shardir.backends.cpu.dispatch.program_table import RunProgram, program_address
from shardir.backends.cpu.threads import memory
from shardir.backends.cpu.threads.workers import worker_pool
from shardir.backends.native import native
from shardir.backends.storage import Storage
from shardir.ir.dtypes import NumpyDType

_NARROWED_KINDS = {
    ("f", 8): ("float", 1), ("c", 16): ("float", 2), ("i", 8): ("signed", 1),
    ("u", 8): ("unsigned", 1),
}  # fmt: skip
"""The element types that are converted to half their width: the conversion, and the numbers in an
element."""


class LaunchResult(NamedTuple):
    """A result: its block and offset, and the properties of its array.

    A block below 0 refers to the argument -1 - block, of which the result is all, or a `part`.
    """

    block: int
    offset: int
    shape: tuple[int, ...]
    dtype: Any
    signature: Any
    sharding: Any
    part: bool = False


class ArrayImport(NamedTuple):
    """A contiguous NumPy array: its shape, its element type, and the element type after import.

    A program reads NumPy's memory in place if it only reads it. 64-bit elements that are narrowed,
    bool arrays, whose bytes may have any value, and elements that a result aliases are copied into
    a block of the pool first, because other code may write into NumPy's memory later. Integers that
    do not fit are left to Python code, which raises the error.
    """

    shape: tuple[int, ...]
    source_dtype: NumpyDType
    dtype: NumpyDType


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


def make_launch(
    program: RunProgram | None,
    kind: type,
    template: Sequence[int],
    arguments: Sequence[LaunchArgument],
    places: Sequence[tuple[int, int, int]],
    sizes: Sequence[int],
    results: Sequence[LaunchResult],
    keep: object,
    zeros: bool = False,
) -> Launch | None:
    """Return a function that runs a program on arrays of the class `kind`.

    `template` has the addresses of constant slots, `places` are (slot, block, offset) of buffers in
    the blocks of a call, whose `sizes` are bytes; the blocks hold zeros with `zeros`. `keep` lives
    as long as the function. Without a program the results are parts of arguments or blocks. Returns
    `None` for imports of NumPy arrays and for zeros where the native tier is not installed, and for
    imports and sizes that have no free list.
    """
    if native is None:
        if zeros or any(each.entry is not None for each in arguments):
            return None
        return _make_python_launch(program, kind, template, arguments, places, sizes, results, keep)
    rows = []
    for k, each in enumerate(arguments):
        made = None if each.entry is None else import_row(each.entry)
        if each.entry is not None and made is None:
            return None
        rows.append((each.slot, "array" if made is None else "import", k, 0, each.shape, made))
    pool = memory.MEMORY_POOL
    free_list, allocate = (
        (pool.zeros_free_list_address, memory.allocate_zeros)
        if zeros
        else (pool.free_list_address, memory.allocate)
    )
    blocks = tuple((free_list(size), size, allocate) for size in sizes)
    if zeros and not all(row[0] for row in blocks):
        return None
    run, address = (
        (0, 0) if program is None else (worker_pool().code["run"], program_address(program))
    )
    return native.Launch(
        run, address, tuple(template), tuple(rows), tuple(places), blocks,
        tuple(map(tuple, results)), (tuple(arguments), tuple(results)), (program, keep),
    )  # fmt: skip


def _make_python_launch(
    program: RunProgram | None,
    kind: Any,
    template: Sequence[int],
    arguments: Sequence[LaunchArgument],
    places: Sequence[tuple[int, int, int]],
    sizes: Sequence[int],
    results: Sequence[LaunchResult],
    keep: object,
) -> Launch:
    """Return a launch as Python code, for arrays alone."""
    # The program itself sets slot 0, which `program` does not take. An argument that the program
    # does not read shares a slot behind all others.
    unread = len(template)
    taken = [(unread if each.slot < 0 else each.slot, each.shape) for each in arguments]
    rows = [tuple(each) for each in results]
    allocate = memory.allocate
    empty: list[Any] = [*template, 0]
    for slot, _ in taken:
        empty[slot] = None  # The program raises an error where an argument is missing.
    is_short = len(sizes) == len(rows) == 1 and rows[0][0] == 0
    if program is not None and is_short and all(slot < unread for slot, _ in taken):
        return _make_short_launch(program, kind, empty[1:-1], taken, places, sizes[0], rows[0])

    def launch(leaves: list[Any], *blocks: Any) -> list[Any] | None:
        addresses, storages = empty.copy(), []
        for k, leaf in enumerate(leaves):
            slot, shape = taken[k]
            if type(leaf) is not kind:
                return None
            storage = leaf.buffers
            if type(storage) is not Storage or (shape is not None and storage.shape != shape):
                return None
            addresses[slot] = storage.address
            storages.append(storage)
        owners = blocks or [allocate(size) for size in sizes]
        for slot, block, offset in places:
            addresses[slot] = owners[block].address + offset
        if program is not None:
            program(*addresses[1:unread])
        made = []
        for block, offset, shape, dtype, signature, sharding, is_part in rows:
            if block >= 0:
                owner = owners[block]
                start = owner.address
            else:
                storage = storages[-1 - block]
                owner, start = storage.owner, storage.address
                # A program that overwrites donated memory must not take the owner of a part for a
                # block of its own.
                if is_part and type(owner) is not Storage:
                    owner = storage
            made.append(kind(signature, sharding, Storage(start + offset, owner, shape, dtype)))
        return made

    launch.__dict__["keep"] = keep
    return launch


def _make_short_launch(
    program: RunProgram,
    kind: Any,
    template: list[Any],
    arguments: Sequence[tuple[int, tuple[int, ...] | None]],
    places: Sequence[tuple[int, int, int]],
    nbytes: int,
    result: tuple[Any, ...],
) -> Launch:
    """Return a launch as Python code for a program that allocates one block, with one result in it.

    Most functions that are called eagerly have such a program. The launch sets the fields of the
    result itself, which takes half of the time of two constructors.
    """
    taken = [(slot - 1, shape) for slot, shape in arguments]
    buffers = [(slot - 1, offset) for slot, _, offset in places]
    _, begin, shape, dtype, signature, sharding, _ = result
    allocate, new = memory.allocate, object.__new__

    def launch(leaves: list[Any], *blocks: Any) -> list[Any] | None:
        addresses, storages = template.copy(), []
        # A strict `zip` takes a fifth of the time of a launch.
        for k, leaf in enumerate(leaves):
            slot, expected = taken[k]
            if type(leaf) is not kind:
                return None
            storage = leaf.buffers
            if type(storage) is not Storage:
                return None
            if expected is not None and storage.shape != expected:
                return None
            addresses[slot] = storage.address
            storages.append(storage)
        owner = blocks[0] if blocks else allocate(nbytes)
        start = owner.address
        for slot, offset in buffers:
            addresses[slot] = start + offset
        program(*addresses)
        made = new(Storage)
        made.address, made.owner, made.shape, made.dtype = start + begin, owner, shape, dtype
        made._array = None
        array = new(kind)
        array.signature, array.sharding, array.buffers = signature, sharding, made
        array._parts = array._whole = None
        array._gone = ""
        return [array]

    return launch


def import_row(entry: ArrayImport) -> tuple[object, ...] | None:
    """Return the row of an import in a `native.Launch`; `None` leaves the import to Python code.

    Python code also imports large arrays.
    """
    size = prod(entry.shape)
    nbytes = size * entry.dtype.itemsize
    source = entry.source_dtype
    if source == entry.dtype == np.bool_:
        conversion, count = "truth", size
    elif source == entry.dtype:
        conversion, count = "same", nbytes
    else:
        conversion, each = _NARROWED_KINDS.get((source.kind, source.itemsize), ("", 0))
        count = size * each
        if not conversion or entry.dtype != np.dtype(f"{source.kind}{source.itemsize // 2}"):
            return None
    free_list = memory.MEMORY_POOL.free_list_address(nbytes)
    if not free_list:
        return None
    block = free_list, nbytes, memory.allocate
    return block, entry.shape, entry.dtype, conversion, count
