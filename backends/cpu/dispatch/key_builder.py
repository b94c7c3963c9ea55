"""Build the cache key of a call from its arguments in native code.

    read(header, args, positional, names, call) -> i1

The key of a call consists of the words of its arguments (`cache_key`), and of the values of context
variables. False: an argument has no key, or a context variable that must be `None` is not.
"""

from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMModule, LLVMValue
from shardir.backends.cpu.dispatch.cache_key import (
    HASH_OFFSET,
    LEAF_COUNT_OFFSET,
    MAX_ARGUMENT_DEPTH,
    WORD_COUNT_OFFSET,
    define_cache_key,
)
from shardir.backends.cpu.dispatch.python_api import emit_decref, python_object

HEADER_WORDS = (
    "facts", "nones", "none_count", "variables", "variable_count", "process", "stated",
    "static", "names", "name_count", "swap", "table", "slow",
)  # fmt: skip
"""The words of a function: context variables that must be `None`, and others; a list that replaces
the first of those while that is `None`; a dictionary that must be empty; a bit for each static
position, and the static names (-1: all); whether the two arguments are swapped; the address of its
cache table; and the function for calls that are not in the cache."""


def define_key_builder(module: LLVMModule) -> None:
    """Define `read`, and `describe`, which Python calls with the addresses of its parameters."""
    define_cache_key(module)
    _define_context_words(module)
    _define_build_key(module)
    f = LLVMFunction(module, "describe", ["ptr", "ptr", "i64"], "ptr")
    _, args, _ = f.params
    header, given, count, names, call = (
        f.call("PyLong_AsVoidPtr", [f.load(f.offset(args, 8 * k), "ptr")], "ptr") for k in range(5)
    )
    found = f.call("read", [header, given, count.to("i64", "ptrtoint"), names, call], "i1")
    yes, no = (python_object(f, name) for name in ("true", "false"))
    answer = f.select(found, yes, no)
    f.call("Py_IncRef", [answer])
    f.ret(answer)


def header_word(f: LLVMFunction, header: LLVMValue, name: str, type: str = "i64") -> LLVMValue:
    """Return a word of a function's header."""
    return f.load(f.offset(header, 8 * HEADER_WORDS.index(name)), type)


def _define_context_words(module: LLVMModule) -> None:
    """Define `around(header, call) -> i1`: append the context of a call to its key."""
    f = LLVMFunction(module, "around", ["ptr", "ptr"], "i1", "nounwind", internal=True)
    header, call = f.params
    none = python_object(f, "none")
    good, k = f.variable("i1", 1), f.variable("i64", 0)
    found = f.variable("ptr", 0)

    def look(table: LLVMValue) -> LLVMValue:
        """Return the value of a context variable, borrowed; 0 on an error."""
        found.set(f.value(0, "ptr"))
        variable = f.load(f.offset(table, k.get(), "ptr"), "ptr")
        f.call("PyContextVar_Get", [variable, f.value(0, "ptr"), found.address], "i32")
        with f.when(found.get().is_("ne", 0)):
            emit_decref(f, found.get())
        return found.get()

    nones, variables = (
        header_word(f, header, "nones", "ptr"),
        header_word(f, header, "variables", "ptr"),
    )
    with f.while_(lambda: k.get().is_("slt", header_word(f, header, "none_count")) & good.get()):
        good.set(look(nones).is_("eq", none))
        k.set(k.get() + 1)
    k.set(0)
    count = header_word(f, header, "variable_count")
    with f.while_(lambda: k.get().is_("slt", count) & good.get()):
        held = f.variable("ptr", look(variables))
        with f.when(k.get().is_("eq", 0) & held.get().is_("eq", none)):
            process = header_word(f, header, "process", "ptr")
            some = f.call("PyList_Size", [process], "i64").is_("eq", 1)
            with f.when(some):
                held.set(f.call("PyList_GetItem", [process, f.value(0, "i64")], "ptr"))
        good.set(held.get().is_("ne", 0) & f.call(
            "push", [call, held.get().to("i64", "ptrtoint")], "i1"
        ))  # fmt: skip
        k.set(k.get() + 1)
    with f.when(good.get()):
        stated = f.call("PyDict_Size", [header_word(f, header, "stated", "ptr")], "i64")
        good.set(stated.is_("eq", 0))
    f.ret(good.get())


def _define_build_key(module: LLVMModule) -> None:
    params = ["ptr", "ptr", "i64", "ptr", "ptr"]
    f = LLVMFunction(module, "read", params, "i1", "nounwind", internal=True)
    header, args, positional, names, call = f.params
    for place in (WORD_COUNT_OFFSET, LEAF_COUNT_OFFSET, HASH_OFFSET):
        f.store(f.value(0, "i64"), f.offset(call, place))
    facts = header_word(f, header, "facts", "ptr")
    good, k = f.variable("i1", f.call("around", [header, call], "i1")), f.variable("i64", 0)
    static, swap = header_word(f, header, "static"), header_word(f, header, "swap")
    depth = f.value(MAX_ARGUMENT_DEPTH, "i64")
    with f.when(good.get()):
        two = positional.is_("eq", 2) | swap.is_("eq", 0)
        good.set(two & f.call("push", [call, positional], "i1"))

    def argument(is_static: LLVMValue, x: LLVMValue) -> None:
        f.if_else(
            is_static,
            lambda: good.set(f.call("static", [facts, call, x, depth], "i1")),
            lambda: good.set(f.call("dynamic", [facts, call, x, depth], "i1")),
        )

    with f.while_(lambda: k.get().is_("slt", positional) & good.get()):
        number = k.get()
        x = f.load(f.offset(args, number ^ swap, "ptr"), "ptr")
        argument((static >> f.umin(number, 63) & 1).is_("ne", 0), x)
        k.set(number + 1)
    with f.when(names.is_("ne", 0) & good.get()):
        count = f.call("PyTuple_Size", [names], "i64")
        known, table = header_word(f, header, "name_count"), header_word(f, header, "names", "ptr")
        k.set(0)
        with f.while_(lambda: k.get().is_("slt", count) & good.get()):
            name = f.call("PyTuple_GetItem", [names, k.get()], "ptr")
            good.set(f.call("push", [call, name.to("i64", "ptrtoint")], "i1"))
            is_static = f.variable("i1", known.is_("slt", 0))
            with f.loop(0, known) as other:
                same = f.load(f.offset(table, other, "ptr"), "ptr").is_("eq", name)
                is_static.set(is_static.get() | same)
            with f.when(good.get()):
                argument(
                    is_static.get(), f.load(f.offset(args, positional + k.get(), "ptr"), "ptr")
                )
            k.set(k.get() + 1)
    f.ret(good.get())
