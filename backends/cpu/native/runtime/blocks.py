"""Small memory blocks as Python objects that native code allocates and recycles.

When the last reference to such a block is dropped, the block is pushed onto the free list of its
size, its *home*, and the next allocation pops it: neither allocates memory or runs Python code. All
of this happens under the GIL, atomically for other threads.
"""

from collections.abc import Callable
from typing import Any

from shardir.backends.cpu.native.llvm.text import Function, Module
from shardir.backends.cpu.native.runtime.entry import function
from shardir.backends.cpu.native.runtime.objects import readable
from shardir.backends.cpu.native.runtime.once import once
from shardir.backends.cpu.native.runtime.python import python_object, refuse_count
from shardir.backends.cpu.native.runtime.references import take
from shardir.backends.cpu.native.runtime.specs import (
    DISALLOW_INSTANTIATION,
    TP_DEALLOC,
    UNSIGNED,
    made_type,
)

ADDRESS, NBYTES, HOME, NEXT = 16, 24, 32, 40
"""Byte offsets in a block: memory address, requested size, free list, and next block in the
list."""
COUNT = 8
"""Byte offset in a free list of its length; the first block is at offset 0."""

Hand = Callable[..., Any]
"""`hand(type, home, nbytes, address)`: a new block at an address, or one of the free list for 0."""


@once
def small_block_type(dealloc: int) -> type | None:
    """Return the type of small blocks; `dealloc` is the address of `retire`.

    Returns `None` if this Python has an unknown object layout.
    """
    if not readable():
        return None
    members = [("address", UNSIGNED, ADDRESS), ("nbytes", UNSIGNED, NBYTES)]
    name = "shardir.backends.cpu.native.runtime.blocks.SmallBlock"
    result: type = made_type(name, 4, members, {TP_DEALLOC: dealloc}, DISALLOW_INSTANTIATION)
    return result


def hand(code: int) -> Hand:
    """Return a Python function for the native function `hand` at an address."""
    result: Hand = function(code, 0, None)
    return result


def define_blocks(module: Module) -> None:
    """Define `retire`, `hand`, and `pop(home, nbytes) -> a block, 0 if there is none`."""
    _define_retire(module)
    _define_pop(module)
    f = Function(module, "hand", ["ptr", "ptr", "i64"], "ptr")
    _, args, count = f.params
    answer = f.variable("ptr", 0)
    none = python_object(f, "none")

    def refuse() -> None:
        refuse_count(f)

    def go() -> None:
        home, nbytes, address = (
            f.call("PyLong_AsVoidPtr", [f.load(f.offset(args, 8 * k), "ptr")], "ptr")
            for k in (1, 2, 3)
        )
        size = nbytes.to("i64", "ptrtoint")

        def old() -> None:
            answer.set(f.call("pop", [home, size], "ptr"))
            with f.when(answer.get().is_("eq", 0)):
                take(f, none)
                answer.set(none)

        def new() -> None:
            kind = f.load(args, "ptr")
            answer.set(f.call("PyType_GenericAlloc", [kind, f.value(0, "i64")], "ptr"))
            with f.when(answer.get().is_("ne", 0)):
                for value, place in ((address, ADDRESS), (size, NBYTES), (home, HOME)):
                    f.store(value, f.offset(answer.get(), place))

        f.choose(address.is_("eq", 0), old, new)

    f.choose(count.is_("eq", 4), go, refuse)
    f.leave(answer.get())


def _define_retire(module: Module) -> None:
    """Define `retire(block)`, which Python calls after the last reference to a block is dropped."""
    f = Function(module, "retire", ["ptr"])
    (block,) = f.params
    home = f.load(f.offset(block, HOME), "ptr")
    f.store(f.load(home, "ptr"), f.offset(block, NEXT))
    f.store(block, home)
    count = f.offset(home, COUNT)
    f.store(f.load(count, "i64") + 1, count)
    f.leave()


def _define_pop(module: Module) -> None:
    f = Function(module, "pop", ["ptr", "i64"], "ptr", "nounwind", internal=True)
    home, nbytes = f.params
    block = f.load(home, "ptr")
    with f.when(block.is_("ne", 0)):
        f.store(f.load(f.offset(block, NEXT), "ptr"), home)
        count = f.offset(home, COUNT)
        f.store(f.load(count, "i64") - 1, count)
        f.store(nbytes, f.offset(block, NBYTES))
        f.store(f.value(1, "i64"), block)
    f.leave(block)
