"""A native fast path of `block_until_ready` for arrays in nested containers that are ready.

    install_block_until_ready(code, kind, f)     # f(x) returns x if all arrays in x are ready

An array is ready if a single storage holds its elements. The supported containers are those of
`flatten_arguments`. The fast path allocates nothing.
"""

import ctypes
from collections.abc import Callable
from typing import Any

from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMModule, LLVMValue
from shardir.backends.cpu.dispatch.flatten_arguments import MAX_CONTAINER_DEPTH
from shardir.backends.cpu.dispatch.object_layout import TYPE_OFFSET, slot_offsets
from shardir.backends.cpu.dispatch.once import memoize_once
from shardir.backends.cpu.dispatch.python_api import emit_incref, python_object
from shardir.backends.cpu.dispatch.vectorcall_class import (
    HEADER_OFFSET,
    has_vectorcall,
    install_vectorcall,
)
from shardir.backends.storage import Storage

READY_WORDS = ("kind", "held", "storage", "dict", "list", "tuple", "slow")
"""The words behind `self`: types, and the offset of a slot; and the function that is called with
the called object and its argument if the argument is not ready."""


def install_block_until_ready(code: int, kind: type, target: object) -> bool:
    """Let native code, `wait` at an address, return the argument of an object if it is ready.

    The object is of a `vectorcall_class`. Returns whether this is supported here.
    """
    header = _ready_header(kind, type(target).__call__) if has_vectorcall(target) else None
    if header is not None:
        install_vectorcall(target, code, ctypes.addressof(header))
    return header is not None


@memoize_once
def _ready_header(kind: type, slow: Callable[..., Any]) -> ctypes.Array[ctypes.c_int64] | None:
    found = slot_offsets(object.__new__(kind), ("held",))
    if found is None:
        return None
    words = (id(kind), found[0], id(Storage), id(dict), id(list), id(tuple), id(slow))
    return (ctypes.c_int64 * len(words))(*words)


def define_block_until_ready(module: LLVMModule) -> None:
    """Define `wait`, a vectorcall function, which uses `slowly`."""
    _define_is_ready(module)
    f = LLVMFunction(module, "wait", ["ptr", "ptr", "i64", "ptr"], "ptr")
    called, args, flags, names = f.params
    positional = flags & 0x7FFFFFFFFFFFFFFF
    facts = f.load(f.offset(called, HEADER_OFFSET), "ptr")
    answer = f.variable("ptr", 0)
    with f.when(positional.is_("eq", 1) & names.is_("eq", 0)):
        x = f.load(args, "ptr")
        with f.when(f.call("look", [facts, x, f.value(MAX_CONTAINER_DEPTH, "i64")], "i1")):
            emit_incref(f, x)
            answer.set(x)
    with f.when(answer.get().is_("eq", 0)):
        slow = f.load(f.offset(facts, 8 * READY_WORDS.index("slow")), "ptr")
        answer.set(f.call("slowly", [called, slow, args, positional, names], "ptr"))
    f.ret(answer.get())


def _define_is_ready(module: LLVMModule) -> None:
    """Define `look(facts, x, depth) -> whether all contents are supported and ready`."""
    f = LLVMFunction(module, "look", ["ptr", "ptr", "i64"], "i1", "nounwind", internal=True)
    facts, x, depth = f.params
    kind = f.load(f.offset(x, TYPE_OFFSET), "ptr")
    good = f.variable("i1", 0)

    def fact(name: str, type: str = "ptr") -> LLVMValue:
        return f.load(f.offset(facts, 8 * READY_WORDS.index(name)), type)

    def leaf() -> None:
        held = f.load(f.offset(x, fact("held", "i64")), "ptr")
        good.set(f.load(f.offset(held, TYPE_OFFSET), "ptr").is_("eq", fact("storage")))

    def inner(each: LLVMValue) -> None:
        good.set(f.call("look", [facts, each, depth - 1], "i1"))

    def values() -> None:
        at, key, value = f.variable("i64", 0), f.variable("ptr", 0), f.variable("ptr", 0)
        places = [each.address for each in (at, key, value)]
        good.set(f.value(1, "i1"))
        more = f.variable("i1", 1)
        with f.while_(lambda: more.get() & good.get()):
            more.set(f.call("PyDict_Next", [x, *places], "i32").is_("ne", 0))
            with f.when(more.get()):
                inner(value.get())

    def items(word: str) -> None:
        count, k = f.call(f"{word}_Size", [x], "i64"), f.variable("i64", 0)
        good.set(f.value(1, "i1"))
        with f.while_(lambda: k.get().is_("slt", count) & good.get()):
            inner(f.call(f"{word}_GetItem", [x, k.get()], "ptr"))
            k.set(k.get() + 1)

    def container() -> None:
        f.if_else(kind.is_("eq", fact("dict")), values, sequence)

    def sequence() -> None:
        f.if_else(kind.is_("eq", fact("tuple")), lambda: items("PyTuple"), other)

    def other() -> None:
        f.if_else(kind.is_("eq", fact("list")), lambda: items("PyList"), nothing)

    def nothing() -> None:
        good.set(x.is_("eq", python_object(f, "none")))

    with f.when(depth.is_("sgt", 0)):
        f.if_else(kind.is_("eq", fact("kind")), leaf, container)
    f.ret(good.get())
