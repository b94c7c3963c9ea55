"""Flatten the arguments of a call from nested containers in native code.

    gather = make_flatten(code, kind)
    leaves, tokens = gather(args, options)   # a list and a tuple; None: unsupported contents

Lists, tuples, dictionaries with string keys, and `None` are traversed in the order in which
`tree.flatten` visits their leaves; objects of the class `kind` are the leaves. Tokens are equal if
and only if the containers and the `signature` of each leaf are equal.
"""

import ctypes
from collections.abc import Callable
from typing import Any, final

from shardir.backends.cpu.native.llvm.text import Function, Module, Value
from shardir.backends.cpu.native.runtime.entry import function
from shardir.backends.cpu.native.runtime.objects import TYPE, offsets
from shardir.backends.cpu.native.runtime.python import python_object

Gather = Callable[..., tuple[list[Any], tuple[Any, ...]] | None]

FACTS = ("kind", "signature", "dict", "list", "tuple", "text", "orders", "learn", "keys", "end")
"""The words behind `self`: types, offsets of slots, and objects."""
DEPTH = 100
"""The nesting depth beyond which Python does the work, because it detects stack overflow."""


@final
class Order:
    """The keys of a dictionary in the order of its leaves.

    Each order is one object, which is faster to look up than its keys.
    """

    __slots__ = ("keys",)

    def __init__(self, keys: tuple[str, ...]) -> None:
        self.keys = keys


@final
class Orders(dict[tuple[str, ...], Order]):
    """The orders of dictionaries, by their keys in insertion order."""

    MANY = 4096

    def __init__(self) -> None:
        self._sorted: dict[tuple[str, ...], Order] = {}

    def learn(self, keys: tuple[str, ...]) -> None:
        """Insert the order of these keys."""
        if len(self) >= self.MANY:
            self.clear()
            self._sorted.clear()
        inside = tuple(sorted(keys))
        self[keys] = self._sorted.setdefault(inside, Order(inside))


def gatherer(code: int, kind: type) -> Gather | None:
    """Return a function that flattens objects of a class, with `gather` at an address.

    Returns `None` if the object layout is unknown.
    """
    found, keys = offsets(object.__new__(kind), ("signature",)), offsets(Order(()), ("keys",))
    if found is None or keys is None:
        return None
    orders, end = Orders(), ")"
    learn = orders.learn
    types = (id(dict), id(list), id(tuple), id(str))
    words = (id(kind), *found, *types, id(orders), id(learn), *keys, id(end))
    header = (ctypes.c_int64 * len(words))(*words)
    result: Gather = function(code, ctypes.addressof(header), (header, kind, orders, learn, end))
    return result


def define_gather(module: Module) -> None:
    """Define `gather`, a built-in function of any number of containers."""
    _define_keys(module)
    _define_walk(module)
    f = Function(module, "gather", ["ptr", "ptr", "i64"], "ptr")
    self, args, count = f.params
    facts = f.call("PyLong_AsVoidPtr", [self], "ptr")
    zero = f.value(0, "i64")
    leaves = f.call("PyList_New", [zero], "ptr")
    tokens = f.call("PyList_New", [zero], "ptr")
    good = f.variable("i1", leaves.is_("ne", 0) & tokens.is_("ne", 0))
    k = f.variable("i64", 0)
    with f.while_(lambda: k.get().is_("slt", count) & good.get()):
        each = f.load(f.offset(args, k.get(), "ptr"), "ptr")
        depth = f.value(DEPTH, "i64")
        good.set(f.call("walk", [facts, each, leaves, tokens, depth], "i1"))
        k.set(k.get() + 1)
    answer = f.variable("ptr", 0)
    with f.when(good.get()):
        key = f.call("PyList_AsTuple", [tokens], "ptr")
        pair = f.call("PyTuple_New", [f.value(2, "i64")], "ptr")
        whole = key.is_("ne", 0) & pair.is_("ne", 0)

        def give() -> None:
            f.call("Py_IncRef", [leaves])
            f.call("PyTuple_SetItem", [pair, f.value(0, "i64"), leaves], "i32")
            f.call("PyTuple_SetItem", [pair, f.value(1, "i64"), key], "i32")
            answer.set(pair)

        def drop() -> None:
            for each in (key, pair):
                _drop(f, each)

        f.choose(whole, give, drop)
    for each in (leaves, tokens):
        _drop(f, each)
    with f.when(answer.get().is_("eq", 0)):
        # Python raises the same error again.
        f.call("PyErr_Clear", [])
        none = python_object(f, "none")
        f.call("Py_IncRef", [none])
        answer.set(none)
    f.leave(answer.get())


def _define_keys(module: Module) -> None:
    """Define `keys(facts, dictionary) -> its order, borrowed; 0 if a key is not a string`."""
    f = Function(module, "keys", ["ptr", "ptr"], "ptr", "nounwind", internal=True)
    facts, given = f.params
    count = f.call("PyDict_Size", [given], "i64")
    result = f.call("PyTuple_New", [count], "ptr")
    answer = f.variable("ptr", 0)
    good = f.variable("i1", result.is_("ne", 0))
    at, number = f.variable("i64", 0), f.variable("i64", 0)
    key, value = f.variable("ptr", 0), f.variable("ptr", 0)
    places = [each.address for each in (at, key, value)]
    text = _fact(f, facts, "text")

    def going() -> Value:
        more = f.call("PyDict_Next", [given, *places], "i32").is_("ne", 0)
        return more & good.get() & number.get().is_("slt", count)

    with f.while_(going):
        good.set(_type(f, key.get()).is_("eq", text))
        with f.when(good.get()):
            f.call("Py_IncRef", [key.get()])
            f.call("PyTuple_SetItem", [result, number.get(), key.get()], "i32")
            number.set(number.get() + 1)
    with f.when(good.get() & number.get().is_("eq", count)):
        orders = _fact(f, facts, "orders")
        answer.set(f.call("PyDict_GetItem", [orders, result], "ptr"))
        with f.when(answer.get().is_("eq", 0)):
            learned = f.call("PyObject_CallOneArg", [_fact(f, facts, "learn"), result], "ptr")
            _drop(f, learned)
            answer.set(f.call("PyDict_GetItem", [orders, result], "ptr"))
    _drop(f, result)
    f.leave(answer.get())


def _define_walk(module: Module) -> None:
    """Define `walk(facts, x, leaves, tokens, depth) -> whether all contents are supported`."""
    f = Function(module, "walk", ["ptr", "ptr", "ptr", "ptr", "i64"], "i1", "nounwind", True)
    facts, x, leaves, tokens, depth = f.params
    kind = _type(f, x)
    good = f.variable("i1", 0)

    def push(target: Value, each: Value) -> Value:
        return f.call("PyList_Append", [target, each], "i32").is_("eq", 0)

    def leaf() -> None:
        place = f.load(f.offset(facts, 8 * FACTS.index("signature")), "i64")
        signature = f.load(f.offset(x, place), "ptr")
        good.set(push(leaves, x) & push(tokens, signature))

    def by_keys() -> None:
        order = f.call("keys", [facts, x], "ptr")
        with f.when(order.is_("ne", 0)):
            # The tokens keep the order alive in case it is evicted meanwhile.
            good.set(push(tokens, order))
            place = f.load(f.offset(facts, 8 * FACTS.index("keys")), "i64")
            keys = f.load(f.offset(order, place), "ptr")

            def child(number: Value) -> Value:
                key = f.call("PyTuple_GetItem", [keys, number], "ptr")
                return f.call("PyDict_GetItem", [x, key], "ptr")

            inside(f.call("PyTuple_Size", [keys], "i64"), child)

    def in_order(word: str) -> None:
        good.set(push(tokens, kind))
        size = f.call(f"{word}_Size", [x], "i64")
        inside(size, lambda number: f.call(f"{word}_GetItem", [x, number], "ptr"))

    def inside(count: Value, child: Callable[[Value], Value]) -> None:
        k = f.variable("i64", 0)
        with f.while_(lambda: k.get().is_("slt", count) & good.get()):
            each = child(k.get())
            good.set(each.is_("ne", 0))
            with f.when(good.get()):
                # The traversal owns a reference to the child, in case its container drops it.
                f.call("Py_IncRef", [each])
                good.set(f.call("walk", [facts, each, leaves, tokens, depth - 1], "i1"))
                f.call("Py_DecRef", [each])
            k.set(k.get() + 1)
        with f.when(good.get()):
            good.set(push(tokens, _fact(f, facts, "end")))

    def container() -> None:
        f.choose(kind.is_("eq", _fact(f, facts, "dict")), by_keys, sequence)

    def sequence() -> None:
        f.choose(kind.is_("eq", _fact(f, facts, "tuple")), lambda: in_order("PyTuple"), other)

    def other() -> None:
        f.choose(kind.is_("eq", _fact(f, facts, "list")), lambda: in_order("PyList"), nothing)

    def nothing() -> None:
        none = python_object(f, "none")
        with f.when(x.is_("eq", none)):
            good.set(push(tokens, none))

    with f.when(depth.is_("sgt", 0)):
        f.choose(kind.is_("eq", _fact(f, facts, "kind")), leaf, container)
    f.leave(good.get())


def _fact(f: Function, facts: Value, name: str) -> Value:
    return f.load(f.offset(facts, 8 * FACTS.index(name)), "ptr")


def _type(f: Function, value: Value) -> Value:
    return f.load(f.offset(value, TYPE), "ptr")


def _drop(f: Function, value: Value) -> None:
    with f.when(value.is_("ne", 0)):
        f.call("Py_DecRef", [value])
