"""Append arguments of calls to a cache key in native code, as words called *tokens*.

    static(facts, call, x, depth) -> i1
    dynamic(facts, call, x, depth) -> i1

Equal keys mean the same program and the same static arguments. The key of an array is its
`signature`, of a contiguous NumPy array its element type and shape, of `bytes` its size, of a
Python number its type. Static arguments are keyed by value: integers and floats by value, strings,
bools and the like by identity, classes together with their metaclass, containers by their contents.
Arrays and numbers that are not keyed by value are the *leaves*. False: an argument is not
supported.
"""

from typing import Any

import numpy as np

from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMModule, LLVMValue
from shardir.backends.cpu.dispatch import numpy_layout
from shardir.backends.cpu.dispatch.python_api import type_of

MAX_KEY_WORDS = 1600
MAX_LEAVES = 500
WORD_COUNT_OFFSET, LEAF_COUNT_OFFSET, HASH_OFFSET = 0, 8, 16
WORDS_OFFSET = 24
LEAVES_OFFSET = WORDS_OFFSET + 8 * MAX_KEY_WORDS
CALL_KEY_BYTES = LEAVES_OFFSET + 8 * MAX_LEAVES
"""The layout of a key in memory: the number of words and of leaves, the hash, and all of them."""

MAX_ARGUMENT_DEPTH = 20
"""The nesting depth beyond which Python does the work."""
HASH_MULTIPLIER = -7046029254386353131
"""An odd multiplier that spreads bits: 2 ** 64 divided by the golden ratio."""

NUMPY_SCALAR_NAMES = ("float32", "float64", "int32", "int64")
"""NumPy scalars that are subclasses of Python numbers or accepted like them."""
CONTAINER_NAMES = ("tuple", "list", "dict")
IDENTITY_KEY_TYPES = ("bool", "str", "NoneType", "ellipsis")
"""Types whose static objects are keyed by identity."""
KEY_TYPE_WORDS = (
    "kind", "signature", "int", "float", "slice", "dtypes", "bytes", "ndarray", *NUMPY_SCALAR_NAMES,
    *CONTAINER_NAMES, *IDENTITY_KEY_TYPES, "type",
)  # fmt: skip
"""The words that all functions share: types, and the offset of a slot."""


def key_type_words(kind: type, signature: int, dtypes: type) -> list[int]:
    """Return the words of `KEY_TYPE_WORDS`; `dtypes` is the metaclass of NumPy's dtype classes."""
    given: dict[str, Any] = {"kind": kind, "dtypes": dtypes, "slice": slice}
    for each in (int, float, tuple, list, dict, bool, str, bytes, type, type(None), type(...)):
        given[each.__name__] = each
    for name in NUMPY_SCALAR_NAMES:
        given[name] = getattr(np, name)
    numbers = {
        "signature": signature,
        "ndarray": id(np.ndarray) if numpy_layout.has_known_layout() else 0,
    }
    return [numbers[name] if name in numbers else id(given[name]) for name in KEY_TYPE_WORDS]


def define_cache_key(module: LLVMModule) -> None:
    """Define `push`, `leaf`, `static` and `dynamic`."""
    _define_push(module)
    _StaticKeyWalk(module)
    _DynamicKeyWalk(module)


def key_type_word(f: LLVMFunction, facts: LLVMValue, name: str, type: str = "ptr") -> LLVMValue:
    return f.load(f.offset(facts, 8 * KEY_TYPE_WORDS.index(name)), type)


def _define_push(module: LLVMModule) -> None:
    """Define `push(call, token) -> i1` and `leaf(call, thing) -> i1`: append one; false: too
    many."""
    f = LLVMFunction(module, "push", ["ptr", "i64"], "i1", "nounwind", internal=True)
    call, token = f.params
    count = f.load(call, "i64")
    mixed = f.load(f.offset(call, HASH_OFFSET), "i64")
    f.store((mixed ^ token) * HASH_MULTIPLIER, f.offset(call, HASH_OFFSET))
    f.store(token, f.offset(f.offset(call, WORDS_OFFSET), count, "i64"))
    f.store(count + 1, call)
    f.ret(count.is_("slt", MAX_KEY_WORDS - 1))
    f = LLVMFunction(module, "leaf", ["ptr", "ptr"], "i1", "nounwind", internal=True)
    call, value = f.params
    place = f.offset(call, LEAF_COUNT_OFFSET)
    count = f.load(place, "i64")
    f.store(value, f.offset(f.offset(call, LEAVES_OFFSET), count, "i64"))
    f.store(count + 1, place)
    f.ret(count.is_("slt", MAX_LEAVES - 1))


class _KeyWalk:
    """Define `NAME(facts, call, x, depth) -> i1`: append one argument."""

    name: str

    def __init__(self, module: LLVMModule) -> None:
        params = ["ptr", "ptr", "ptr", "i64"]
        f = self.f = LLVMFunction(module, self.name, params, "i1", "nounwind", internal=True)
        self.facts, self.call, self.x, self.depth = f.params
        self.kind = type_of(f, self.x)
        self.good = f.variable("i1", 0)
        with f.when(self.depth.is_("sgt", 0)):
            self.begin()
        f.ret(self.good.get())

    def begin(self) -> None:
        raise NotImplementedError

    def is_(self, name: str) -> LLVMValue:
        return self.kind.is_("eq", key_type_word(self.f, self.facts, name))

    def push(self, token: LLVMValue) -> LLVMValue:
        number = token.to("i64", "ptrtoint") if token.type == "ptr" else token
        return self.f.call("push", [self.call, number], "i1")

    def visit_child(self, x: LLVMValue, name: str) -> LLVMValue:
        return self.f.call(name, [self.facts, self.call, x, self.depth - 1], "i1")

    def visit_items(self, word: str) -> None:
        """Append the items of a list or tuple."""
        f, good = self.f, self.good
        count, k = f.call(f"{word}_Size", [self.x], "i64"), f.variable("i64", 0)
        good.set(self.push(self.kind) & self.push(count))
        with f.while_(lambda: k.get().is_("slt", count) & good.get()):
            item = f.call(f"{word}_GetItem", [self.x, k.get()], "ptr")
            good.set(self.visit_child(item, self.name))
            k.set(k.get() + 1)

    def leaf(self) -> LLVMValue:
        return self.f.call("leaf", [self.call, self.x], "i1")

    def visit_array(self) -> LLVMValue:
        """Append an array, which is a leaf even in static arguments."""
        f = self.f
        place = key_type_word(f, self.facts, "signature", "i64")
        signature = f.load(f.offset(self.x, place), "ptr")
        return self.push(signature) & self.leaf()

    def visit_numpy_array(self) -> None:
        """Append a NumPy array, which is a leaf if it is C-contiguous."""
        f, x, good = self.f, self.x, self.good
        flags = (
            f.load(f.offset(x, numpy_layout.FLAGS_OFFSET), "i32")
            & numpy_layout.C_CONTIGUOUS_ALIGNED
        )
        rank = f.load(f.offset(x, numpy_layout.RANK_OFFSET), "i32").to("i64", "sext")
        kind = f.load(f.offset(x, numpy_layout.DTYPE_OFFSET), "ptr")
        with f.when(flags.is_("eq", numpy_layout.C_CONTIGUOUS_ALIGNED)):
            good.set(self.push(self.kind) & self.push(kind) & self.push(rank))
            extents, k = f.load(f.offset(x, numpy_layout.SHAPE_OFFSET), "ptr"), f.variable("i64", 0)
            with f.while_(lambda: k.get().is_("slt", rank) & good.get()):
                good.set(self.push(f.load(f.offset(extents, k.get(), "i64"), "i64")))
                k.set(k.get() + 1)
            with f.when(good.get()):
                good.set(self.leaf())

    def static(self) -> None:
        self.good.set(self.visit_child(self.x, "static"))

    def sequence_or(self, other: Any) -> None:
        f = self.f

        def maybe_list() -> None:
            f.if_else(self.is_("list"), lambda: self.visit_items("PyList"), other)

        f.if_else(self.is_("tuple"), lambda: self.visit_items("PyTuple"), maybe_list)


class _StaticKeyWalk(_KeyWalk):
    """Append arguments that are keyed by value."""

    name = "static"

    def begin(self) -> None:
        f = self.f
        itself = self.is_(IDENTITY_KEY_TYPES[0])
        for name in IDENTITY_KEY_TYPES[1:]:
            itself = itself | self.is_(name)

        def maybe_class() -> None:
            f.if_else(self.is_("type"), of_class, self.number)

        def of_class() -> None:
            # The address of the class alone is the key of a number of that class.
            self.good.set(self.push(self.kind) & self.push(self.x))

        f.if_else(itself, lambda: self.good.set(self.push(self.x)), maybe_class)

    def number(self) -> None:
        f = self.f

        def whole() -> None:
            over = f.variable("i32", 0)
            found = f.call("PyLong_AsLongLongAndOverflow", [self.x, over.address], "i64")
            self.good.set(over.get().is_("eq", 0) & self.push(self.kind) & self.push(found))

        def real() -> None:
            found = f.call("PyFloat_AsDouble", [self.x], "double")
            self.good.set(self.push(self.kind) & self.push(found.to("i64", "bitcast")))

        def not_whole() -> None:
            f.if_else(self.is_("float"), real, self.other)

        f.if_else(self.is_("int"), whole, not_whole)

    def other(self) -> None:
        self.sequence_or(self.slice)

    def slice(self) -> None:
        f = self.f

        def parts() -> None:
            self.good.set(self.push(self.kind))
            for place in (16, 24, 32):
                part = f.load(f.offset(self.x, place), "ptr")
                with f.when(self.good.get()):
                    self.good.set(self.visit_child(part, "static"))

        def array() -> None:
            self.good.set(self.visit_array())

        def dtype() -> None:
            kinds = type_of(f, self.kind)
            with f.when(kinds.is_("eq", key_type_word(f, self.facts, "dtypes"))):
                self.good.set(self.push(self.x))

        def octets() -> None:
            count = f.load(f.offset(self.x, numpy_layout.BYTES_SIZE_OFFSET), "i64")
            self.good.set(self.push(self.kind) & self.push(count) & self.leaf())

        def not_foreign() -> None:
            f.if_else(self.is_("bytes"), octets, dtype)

        def not_array() -> None:
            f.if_else(self.is_("ndarray"), self.visit_numpy_array, not_foreign)

        def not_slice() -> None:
            f.if_else(self.is_("kind"), array, not_array)

        f.if_else(self.is_("slice"), parts, not_slice)


class _DynamicKeyWalk(_KeyWalk):
    """Append arguments whose arrays and numbers are leaves."""

    name = "dynamic"

    def begin(self) -> None:
        f = self.f

        f.if_else(self.is_("kind"), lambda: self.good.set(self.visit_array()), self.number)

    def number(self) -> None:
        a_number = self.is_("int") | self.is_("float") | self.is_("bool")
        for name in NUMPY_SCALAR_NAMES:
            a_number = a_number | self.is_(name)
        self.f.if_else(
            a_number, lambda: self.good.set(self.push(self.kind) & self.leaf()), self.container
        )

    def container(self) -> None:
        f = self.f

        def maybe_dict() -> None:
            f.if_else(self.is_("dict"), self.visit_dict, self.static)

        self.sequence_or(maybe_dict)

    def visit_dict(self) -> None:
        """Append keys and values of a dictionary in insertion order."""
        f, good, x = self.f, self.good, self.x
        good.set(self.push(self.kind) & self.push(f.call("PyDict_Size", [x], "i64")))
        at, key, value = f.variable("i64", 0), f.variable("ptr", 0), f.variable("ptr", 0)
        places = [each.address for each in (at, key, value)]
        more = f.variable("i1", 1)
        with f.while_(lambda: more.get() & good.get()):
            more.set(f.call("PyDict_Next", [x, *places], "i32").is_("ne", 0))
            with f.when(more.get()):
                text = type_of(f, key.get()).is_("eq", key_type_word(f, self.facts, "str"))
                good.set(text & self.push(key.get()))
                with f.when(good.get()):
                    good.set(self.visit_child(value.get(), self.name))
