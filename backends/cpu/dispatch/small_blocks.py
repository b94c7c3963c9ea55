"""Small memory blocks as Python objects that native code allocates and recycles.

When the last reference to such a block is dropped, the block is pushed onto the free list of its
size, its *home*, and the next allocation pops it: neither allocates memory or runs Python code. All
of this happens under the GIL, atomically for other threads.
"""

from collections.abc import Callable
from typing import Any

from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMModule
from shardir.backends.cpu.dispatch.entry_point import make_builtin_function
from shardir.backends.cpu.dispatch.object_layout import has_known_layout
from shardir.backends.cpu.dispatch.once import memoize_once
from shardir.backends.cpu.dispatch.python_api import emit_incref, python_object, raise_wrong_count
from shardir.backends.cpu.dispatch.type_specs import (
    DISALLOW_INSTANTIATION,
    MEMBER_UINT64,
    TP_DEALLOC,
    make_type,
)

ADDRESS_OFFSET, NBYTES_OFFSET, FREE_LIST_OFFSET, NEXT_OFFSET = 16, 24, 32, 40
"""Byte offsets in a block: memory address, requested size, free list, and next block in the
list."""
FREE_LIST_COUNT_OFFSET = 8
"""Byte offset in a free list of its length; the first block is at offset 0."""

MakeBlock = Callable[..., Any]
"""`hand(type, home, nbytes, address)`: a new block at an address, or one of the free list for 0."""


@memoize_once
def small_block_type(dealloc: int) -> type | None:
    """Return the type of small blocks; `dealloc` is the address of `retire`.

    Returns `None` if this Python has an unknown object layout.
    """
    if not has_known_layout():
        return None
    members = [("address", MEMBER_UINT64, ADDRESS_OFFSET), ("nbytes", MEMBER_UINT64, NBYTES_OFFSET)]
    name = "shardir.backends.cpu.dispatch.small_blocks.SmallBlock"
    result: type = make_type(name, 4, members, {TP_DEALLOC: dealloc}, DISALLOW_INSTANTIATION)
    return result


def block_maker(code: int) -> MakeBlock:
    """Return a Python function for the native function `block_maker` at an address."""
    result: MakeBlock = make_builtin_function(code, 0, None)
    return result


def define_blocks(module: LLVMModule) -> None:
    """Define `retire`, `block_maker`, and `pop(home, nbytes) -> a block, 0 if there is none`."""
    _define_retire(module)
    _define_pop(module)
    f = LLVMFunction(module, "hand", ["ptr", "ptr", "i64"], "ptr")
    _, args, count = f.params
    answer = f.variable("ptr", 0)
    none = python_object(f, "none")

    def refuse() -> None:
        raise_wrong_count(f)

    def go() -> None:
        home, nbytes, address = (
            f.call("PyLong_AsVoidPtr", [f.load(f.offset(args, 8 * k), "ptr")], "ptr")
            for k in (1, 2, 3)
        )
        size = nbytes.to("i64", "ptrtoint")

        def old() -> None:
            answer.set(f.call("pop", [home, size], "ptr"))
            with f.when(answer.get().is_("eq", 0)):
                emit_incref(f, none)
                answer.set(none)

        def new() -> None:
            kind = f.load(args, "ptr")
            answer.set(f.call("PyType_GenericAlloc", [kind, f.value(0, "i64")], "ptr"))
            with f.when(answer.get().is_("ne", 0)):
                for value, place in (
                    (address, ADDRESS_OFFSET),
                    (size, NBYTES_OFFSET),
                    (home, FREE_LIST_OFFSET),
                ):
                    f.store(value, f.offset(answer.get(), place))

        f.if_else(address.is_("eq", 0), old, new)

    f.if_else(count.is_("eq", 4), go, refuse)
    f.ret(answer.get())


def _define_retire(module: LLVMModule) -> None:
    """Define `retire(block)`, which Python calls after the last reference to a block is dropped."""
    f = LLVMFunction(module, "retire", ["ptr"])
    (block,) = f.params
    home = f.load(f.offset(block, FREE_LIST_OFFSET), "ptr")
    f.store(f.load(home, "ptr"), f.offset(block, NEXT_OFFSET))
    f.store(block, home)
    count = f.offset(home, FREE_LIST_COUNT_OFFSET)
    f.store(f.load(count, "i64") + 1, count)
    f.ret()


def _define_pop(module: LLVMModule) -> None:
    f = LLVMFunction(module, "pop", ["ptr", "i64"], "ptr", "nounwind", internal=True)
    home, nbytes = f.params
    block = f.load(home, "ptr")
    with f.when(block.is_("ne", 0)):
        f.store(f.load(f.offset(block, NEXT_OFFSET), "ptr"), home)
        count = f.offset(home, FREE_LIST_COUNT_OFFSET)
        f.store(f.load(count, "i64") - 1, count)
        f.store(nbytes, f.offset(block, NBYTES_OFFSET))
        f.store(f.value(1, "i64"), block)
    f.ret(block)
