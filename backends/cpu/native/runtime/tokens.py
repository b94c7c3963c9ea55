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

from shardir.backends.cpu.native.llvm.text import Function, Module, Value
from shardir.backends.cpu.native.runtime import foreign
from shardir.backends.cpu.native.runtime.references import type_of

MOST_TOKENS = 1600
MOST_LEAVES = 500
COUNT, LEAF_COUNT, HASH = 0, 8, 16
TOKENS = 24
LEAVES = TOKENS + 8 * MOST_TOKENS
CALL_BYTES = LEAVES + 8 * MOST_LEAVES
"""The layout of a key in memory: the number of words and of leaves, the hash, and all of them."""

DEPTH = 20
"""The nesting depth beyond which Python does the work."""
FACTOR = -7046029254386353131
"""An odd multiplier that spreads bits: 2 ** 64 divided by the golden ratio."""

SCALARS = ("float32", "float64", "int32", "int64")
"""NumPy scalars that are subclasses of Python numbers or accepted like them."""
CONTAINERS = ("tuple", "list", "dict")
ITSELF = ("bool", "str", "NoneType", "ellipsis")
"""Types whose static objects are keyed by identity."""
FACTS = (
    "kind", "signature", "int", "float", "slice", "dtypes", "bytes", "ndarray", *SCALARS,
    *CONTAINERS, *ITSELF, "type",
)  # fmt: skip
"""The words that all functions share: types, and the offset of a slot."""


def facts_of(kind: type, signature: int, dtypes: type) -> list[int]:
    """Return the words of `KEY_TYPE_WORDS`; `dtypes` is the metaclass of NumPy's dtype classes."""
    given: dict[str, Any] = {"kind": kind, "dtypes": dtypes, "slice": slice}
    for each in (int, float, tuple, list, dict, bool, str, bytes, type, type(None), type(...)):
        given[each.__name__] = each
    for name in SCALARS:
        given[name] = getattr(np, name)
    numbers = {"signature": signature, "ndarray": id(np.ndarray) if foreign.readable() else 0}
    return [numbers[name] if name in numbers else id(given[name]) for name in FACTS]


def define_tokens(module: Module) -> None:
    """Define `push`, `leaf`, `static` and `dynamic`."""
    _define_push(module)
    _Static(module)
    _Dynamic(module)


def fact(f: Function, facts: Value, name: str, type: str = "ptr") -> Value:
    return f.load(f.offset(facts, 8 * FACTS.index(name)), type)


def _define_push(module: Module) -> None:
    """Define `push(call, token) -> i1` and `leaf(call, thing) -> i1`: append one; false: too
    many."""
    f = Function(module, "push", ["ptr", "i64"], "i1", "nounwind", internal=True)
    call, token = f.params
    count = f.load(call, "i64")
    mixed = f.load(f.offset(call, HASH), "i64")
    f.store((mixed ^ token) * FACTOR, f.offset(call, HASH))
    f.store(token, f.offset(f.offset(call, TOKENS), count, "i64"))
    f.store(count + 1, call)
    f.leave(count.is_("slt", MOST_TOKENS - 1))
    f = Function(module, "leaf", ["ptr", "ptr"], "i1", "nounwind", internal=True)
    call, value = f.params
    place = f.offset(call, LEAF_COUNT)
    count = f.load(place, "i64")
    f.store(value, f.offset(f.offset(call, LEAVES), count, "i64"))
    f.store(count + 1, place)
    f.leave(count.is_("slt", MOST_LEAVES - 1))


class _Walk:
    """Define `NAME(facts, call, x, depth) -> i1`: append one argument."""

    name: str

    def __init__(self, module: Module) -> None:
        params = ["ptr", "ptr", "ptr", "i64"]
        f = self.f = Function(module, self.name, params, "i1", "nounwind", internal=True)
        self.facts, self.call, self.x, self.depth = f.params
        self.kind = type_of(f, self.x)
        self.good = f.variable("i1", 0)
        with f.when(self.depth.is_("sgt", 0)):
            self.begin()
        f.leave(self.good.get())

    def begin(self) -> None:
        raise NotImplementedError

    def is_(self, name: str) -> Value:
        return self.kind.is_("eq", fact(self.f, self.facts, name))

    def push(self, token: Value) -> Value:
        number = token.to("i64", "ptrtoint") if token.type == "ptr" else token
        return self.f.call("push", [self.call, number], "i1")

    def inside(self, x: Value, name: str) -> Value:
        return self.f.call(name, [self.facts, self.call, x, self.depth - 1], "i1")

    def items(self, word: str) -> None:
        """Append the items of a list or tuple."""
        f, good = self.f, self.good
        count, k = f.call(f"{word}_Size", [self.x], "i64"), f.variable("i64", 0)
        good.set(self.push(self.kind) & self.push(count))
        with f.while_(lambda: k.get().is_("slt", count) & good.get()):
            item = f.call(f"{word}_GetItem", [self.x, k.get()], "ptr")
            good.set(self.inside(item, self.name))
            k.set(k.get() + 1)

    def leaf(self) -> Value:
        return self.f.call("leaf", [self.call, self.x], "i1")

    def array(self) -> Value:
        """Append an array, which is a leaf even in static arguments."""
        f = self.f
        place = fact(f, self.facts, "signature", "i64")
        signature = f.load(f.offset(self.x, place), "ptr")
        return self.push(signature) & self.leaf()

    def foreign(self) -> None:
        """Append a NumPy array, which is a leaf if it is C-contiguous."""
        f, x, good = self.f, self.x, self.good
        flags = f.load(f.offset(x, foreign.FLAGS), "i32") & foreign.IN_ONE_PIECE
        rank = f.load(f.offset(x, foreign.RANK), "i32").to("i64", "sext")
        kind = f.load(f.offset(x, foreign.DTYPE), "ptr")
        with f.when(flags.is_("eq", foreign.IN_ONE_PIECE)):
            good.set(self.push(self.kind) & self.push(kind) & self.push(rank))
            extents, k = f.load(f.offset(x, foreign.SHAPE), "ptr"), f.variable("i64", 0)
            with f.while_(lambda: k.get().is_("slt", rank) & good.get()):
                good.set(self.push(f.load(f.offset(extents, k.get(), "i64"), "i64")))
                k.set(k.get() + 1)
            with f.when(good.get()):
                good.set(self.leaf())

    def static(self) -> None:
        self.good.set(self.inside(self.x, "static"))

    def sequence_or(self, other: Any) -> None:
        f = self.f

        def maybe_list() -> None:
            f.choose(self.is_("list"), lambda: self.items("PyList"), other)

        f.choose(self.is_("tuple"), lambda: self.items("PyTuple"), maybe_list)


class _Static(_Walk):
    """Append arguments that are keyed by value."""

    name = "static"

    def begin(self) -> None:
        f = self.f
        itself = self.is_(ITSELF[0])
        for name in ITSELF[1:]:
            itself = itself | self.is_(name)

        def maybe_class() -> None:
            f.choose(self.is_("type"), of_class, self.number)

        def of_class() -> None:
            # The address of the class alone is the key of a number of that class.
            self.good.set(self.push(self.kind) & self.push(self.x))

        f.choose(itself, lambda: self.good.set(self.push(self.x)), maybe_class)

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
            f.choose(self.is_("float"), real, self.other)

        f.choose(self.is_("int"), whole, not_whole)

    def other(self) -> None:
        self.sequence_or(self.slice)

    def slice(self) -> None:
        f = self.f

        def parts() -> None:
            self.good.set(self.push(self.kind))
            for place in (16, 24, 32):
                part = f.load(f.offset(self.x, place), "ptr")
                with f.when(self.good.get()):
                    self.good.set(self.inside(part, "static"))

        def array() -> None:
            self.good.set(self.array())

        def dtype() -> None:
            kinds = type_of(f, self.kind)
            with f.when(kinds.is_("eq", fact(f, self.facts, "dtypes"))):
                self.good.set(self.push(self.x))

        def octets() -> None:
            count = f.load(f.offset(self.x, foreign.SIZE), "i64")
            self.good.set(self.push(self.kind) & self.push(count) & self.leaf())

        def not_foreign() -> None:
            f.choose(self.is_("bytes"), octets, dtype)

        def not_array() -> None:
            f.choose(self.is_("ndarray"), self.foreign, not_foreign)

        def not_slice() -> None:
            f.choose(self.is_("kind"), array, not_array)

        f.choose(self.is_("slice"), parts, not_slice)


class _Dynamic(_Walk):
    """Append arguments whose arrays and numbers are leaves."""

    name = "dynamic"

    def begin(self) -> None:
        f = self.f

        f.choose(self.is_("kind"), lambda: self.good.set(self.array()), self.number)

    def number(self) -> None:
        a_number = self.is_("int") | self.is_("float") | self.is_("bool")
        for name in SCALARS:
            a_number = a_number | self.is_(name)
        self.f.choose(
            a_number, lambda: self.good.set(self.push(self.kind) & self.leaf()), self.container
        )

    def container(self) -> None:
        f = self.f

        def maybe_dict() -> None:
            f.choose(self.is_("dict"), self.values, self.static)

        self.sequence_or(maybe_dict)

    def values(self) -> None:
        """Append keys and values of a dictionary in insertion order."""
        f, good, x = self.f, self.good, self.x
        good.set(self.push(self.kind) & self.push(f.call("PyDict_Size", [x], "i64")))
        at, key, value = f.variable("i64", 0), f.variable("ptr", 0), f.variable("ptr", 0)
        places = [each.address for each in (at, key, value)]
        more = f.variable("i1", 1)
        with f.while_(lambda: more.get() & good.get()):
            more.set(f.call("PyDict_Next", [x, *places], "i32").is_("ne", 0))
            with f.when(more.get()):
                text = type_of(f, key.get()).is_("eq", fact(f, self.facts, "str"))
                good.set(text & self.push(key.get()))
                with f.when(good.get()):
                    good.set(self.inside(value.get(), self.name))
