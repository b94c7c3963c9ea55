"""What tells calls of a function apart, read by machine code from the arguments as they come.

    read(header, args, positional, names, call) -> i1

A call is written down as words, its *tokens*: equal ones mean the same program and the same static
arguments. An array gives its `signature`, one of NumPy in one piece its element type and shape,
`bytes` how many there are, a number of Python its type; what is static gives itself:
integers and floats by value, texts, classes, bools and the like as objects, containers by what is
in them. What lies around the call gives tokens too: values of context variables. The arrays and
numbers that are no tokens are the *leaves*. False: something else is in there, or one of the
variables that have to be `None` is not.
"""

from typing import Any

import numpy as np

from shardir.backends.cpu.native.llvm.text import Function, Module, Value
from shardir.backends.cpu.native.runtime import foreign
from shardir.backends.cpu.native.runtime.python import python_object
from shardir.backends.cpu.native.runtime.references import drop, type_of

MOST_TOKENS = 1600
MOST_LEAVES = 500
COUNT, LEAF_COUNT, HASH = 0, 8, 16
TOKENS = 24
LEAVES = TOKENS + 8 * MOST_TOKENS
CALL_BYTES = LEAVES + 8 * MOST_LEAVES
"""A call in memory: how many tokens and leaves, what the tokens are mixed to, and all of them."""

DEPTH = 20
"""Containers in containers beyond which Python does the work."""
FACTOR = -7046029254386353131
"""An odd number that spreads bits: 2 ** 64 by the golden ratio."""

SCALARS = ("float32", "float64", "int32", "int64")
"""NumPy's numbers that Python takes for numbers, too."""
CONTAINERS = ("tuple", "list", "dict")
ITSELF = ("bool", "str", "type", "NoneType", "ellipsis")
"""Types whose objects are tokens where they are static."""
FACTS = (
    "kind", "signature", "int", "float", "slice", "dtypes", "bytes", "ndarray", *SCALARS,
    *CONTAINERS, *ITSELF,
)  # fmt: skip
"""Words that are the same for all functions: types, and the offset of a slot."""
HEADER = (
    "facts", "nones", "none_count", "variables", "variable_count", "process", "stated",
    "static", "names", "name_count", "swap", "table", "slow",
)  # fmt: skip
"""The words of a function: context variables that have to be `None`, and others; a list that is
looked at where the first of those is `None`; a dictionary that has to be empty; a bit for each
position that is static, and the names that are (-1: all are); whether the two arguments come in
turned order; where its table is, and what is called in the end for what is not there."""


def facts_of(kind: type, signature: int, dtypes: type) -> list[int]:
    """The words behind `FACTS`; `dtypes` is the class of NumPy's classes of element types."""
    given: dict[str, Any] = {"kind": kind, "dtypes": dtypes, "slice": slice}
    for each in (int, float, tuple, list, dict, bool, str, bytes, type, type(None), type(...)):
        given[each.__name__] = each
    for name in SCALARS:
        given[name] = getattr(np, name)
    numbers = {"signature": signature, "ndarray": id(np.ndarray) if foreign.readable() else 0}
    return [numbers[name] if name in numbers else id(given[name]) for name in FACTS]


def define_read(module: Module) -> None:
    """Define `read`, and `describe`, which Python calls with the addresses of its parameters."""
    _define_push(module)
    _Static(module)
    _Dynamic(module)
    _define_around(module)
    _define_read(module)
    f = Function(module, "describe", ["ptr", "ptr", "i64"], "ptr")
    _, args, _ = f.params
    header, given, count, names, call = (
        f.call("PyLong_AsVoidPtr", [f.load(f.offset(args, 8 * k), "ptr")], "ptr") for k in range(5)
    )
    found = f.call("read", [header, given, count.to("i64", "ptrtoint"), names, call], "i1")
    yes, no = (python_object(f, name) for name in ("true", "false"))
    answer = f.select(found, yes, no)
    f.call("Py_IncRef", [answer])
    f.leave(answer)


def fact(f: Function, facts: Value, name: str, type: str = "ptr") -> Value:
    return f.load(f.offset(facts, 8 * FACTS.index(name)), type)


def word(f: Function, header: Value, name: str, type: str = "i64") -> Value:
    """A word of a function."""
    return f.load(f.offset(header, 8 * HEADER.index(name)), type)


def _define_push(module: Module) -> None:
    """`push(call, token) -> i1` and `leaf(call, thing) -> i1`: one more; false: too many."""
    f = Function(module, "push", ["ptr", "i64"], "i1", "nounwind", internal=True)
    call, token = f.params
    count = f.load(call, "i64")
    mixed = f.load(f.offset(call, HASH), "i64")
    f.store((mixed ^ token) * FACTOR, f.offset(call, HASH))
    f.store(token, f.offset(f.offset(call, TOKENS), count, "i64"))
    f.store(count + 1, call)
    f.leave(count.is_("slt", MOST_TOKENS - 1))
    f = Function(module, "leaf", ["ptr", "ptr"], "i1", "nounwind", internal=True)
    call, thing = f.params
    place = f.offset(call, LEAF_COUNT)
    count = f.load(place, "i64")
    f.store(thing, f.offset(f.offset(call, LEAVES), count, "i64"))
    f.store(count + 1, place)
    f.leave(count.is_("slt", MOST_LEAVES - 1))


class _Walk:
    """`NAME(facts, call, x, depth) -> i1`: write one argument down."""

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
        """The items of a list or tuple."""
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
        """An array is a leaf, whatever else is static."""
        f = self.f
        place = fact(f, self.facts, "signature", "i64")
        signature = f.load(f.offset(self.x, place), "ptr")
        return self.push(signature) & self.leaf()

    def foreign(self) -> None:
        """An array of NumPy is a leaf, too, where its elements lie in row-major order."""
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
    """What is found by itself."""

    name = "static"

    def begin(self) -> None:
        f = self.f
        itself = self.is_(ITSELF[0])
        for name in ITSELF[1:]:
            itself = itself | self.is_(name)
        f.choose(itself, lambda: self.good.set(self.push(self.x)), self.number)

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
    """What holds arrays and numbers, which are leaves."""

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
        """Keys and values of a dictionary, in the order in which they come."""
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


def _define_around(module: Module) -> None:
    """`around(header, call) -> i1`: write down what lies around a call."""
    f = Function(module, "around", ["ptr", "ptr"], "i1", "nounwind", internal=True)
    header, call = f.params
    none = python_object(f, "none")
    good, k = f.variable("i1", 1), f.variable("i64", 0)
    found = f.variable("ptr", 0)

    def look(table: Value) -> Value:
        """What a context variable holds, as long as that holds it; 0: something went wrong."""
        found.set(f.value(0, "ptr"))
        variable = f.load(f.offset(table, k.get(), "ptr"), "ptr")
        f.call("PyContextVar_Get", [variable, f.value(0, "ptr"), found.address], "i32")
        with f.when(found.get().is_("ne", 0)):
            drop(f, found.get())
        return found.get()

    nones, variables = word(f, header, "nones", "ptr"), word(f, header, "variables", "ptr")
    with f.while_(lambda: k.get().is_("slt", word(f, header, "none_count")) & good.get()):
        good.set(look(nones).is_("eq", none))
        k.set(k.get() + 1)
    k.set(0)
    count = word(f, header, "variable_count")
    with f.while_(lambda: k.get().is_("slt", count) & good.get()):
        held = f.variable("ptr", look(variables))
        with f.when(k.get().is_("eq", 0) & held.get().is_("eq", none)):
            process = word(f, header, "process", "ptr")
            some = f.call("PyList_Size", [process], "i64").is_("eq", 1)
            with f.when(some):
                held.set(f.call("PyList_GetItem", [process, f.value(0, "i64")], "ptr"))
        good.set(held.get().is_("ne", 0) & f.call(
            "push", [call, held.get().to("i64", "ptrtoint")], "i1"
        ))  # fmt: skip
        k.set(k.get() + 1)
    with f.when(good.get()):
        stated = f.call("PyDict_Size", [word(f, header, "stated", "ptr")], "i64")
        good.set(stated.is_("eq", 0))
    f.leave(good.get())


def _define_read(module: Module) -> None:
    params = ["ptr", "ptr", "i64", "ptr", "ptr"]
    f = Function(module, "read", params, "i1", "nounwind", internal=True)
    header, args, positional, names, call = f.params
    for place in (COUNT, LEAF_COUNT, HASH):
        f.store(f.value(0, "i64"), f.offset(call, place))
    facts = word(f, header, "facts", "ptr")
    good, k = f.variable("i1", f.call("around", [header, call], "i1")), f.variable("i64", 0)
    static, swap = word(f, header, "static"), word(f, header, "swap")
    depth = f.value(DEPTH, "i64")
    with f.when(good.get()):
        two = positional.is_("eq", 2) | swap.is_("eq", 0)
        good.set(two & f.call("push", [call, positional], "i1"))

    def argument(is_static: Value, x: Value) -> None:
        f.choose(
            is_static,
            lambda: good.set(f.call("static", [facts, call, x, depth], "i1")),
            lambda: good.set(f.call("dynamic", [facts, call, x, depth], "i1")),
        )

    with f.while_(lambda: k.get().is_("slt", positional) & good.get()):
        number = k.get()
        x = f.load(f.offset(args, number ^ swap, "ptr"), "ptr")
        argument((static >> f.least(number, 63) & 1).is_("ne", 0), x)
        k.set(number + 1)
    with f.when(names.is_("ne", 0) & good.get()):
        count = f.call("PyTuple_Size", [names], "i64")
        known, table = word(f, header, "name_count"), word(f, header, "names", "ptr")
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
    f.leave(good.get())
