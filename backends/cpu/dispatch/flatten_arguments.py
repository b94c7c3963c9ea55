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

from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMModule, LLVMValue
from shardir.backends.cpu.dispatch.entry_point import make_builtin_function
from shardir.backends.cpu.dispatch.object_layout import TYPE_OFFSET, slot_offsets
from shardir.backends.cpu.dispatch.python_api import python_object

FlattenArguments = Callable[..., tuple[list[Any], tuple[Any, ...]] | None]

FLATTEN_WORDS = (
    "kind",
    "signature",
    "dict",
    "list",
    "tuple",
    "text",
    "orders",
    "learn",
    "keys",
    "end",
)
"""The words behind `self`: types, offsets of slots, and objects."""
MAX_CONTAINER_DEPTH = 100
"""The nesting depth beyond which Python does the work, because it detects stack overflow."""


@final
class KeyOrder:
    """The keys of a dictionary in the order of its leaves.

    Each order is one object, which is faster to look up than its keys.
    """

    __slots__ = ("keys",)

    def __init__(self, keys: tuple[str, ...]) -> None:
        self.keys = keys


@final
class KeyOrders(dict[tuple[str, ...], KeyOrder]):
    """The orders of dictionaries, by their keys in insertion order."""

    MAX_KEY_ORDERS = 4096

    def __init__(self) -> None:
        self._sorted: dict[tuple[str, ...], KeyOrder] = {}

    def insert(self, keys: tuple[str, ...]) -> None:
        """Insert the order of these keys."""
        if len(self) >= self.MAX_KEY_ORDERS:
            self.clear()
            self._sorted.clear()
        inside = tuple(sorted(keys))
        self[keys] = self._sorted.setdefault(inside, KeyOrder(inside))


def make_flatten(code: int, kind: type) -> FlattenArguments | None:
    """Return a function that flattens objects of a class, with `gather` at an address.

    Returns `None` if the object layout is unknown.
    """
    found, keys = (
        slot_offsets(object.__new__(kind), ("signature",)),
        slot_offsets(KeyOrder(()), ("keys",)),
    )
    if found is None or keys is None:
        return None
    orders, end = KeyOrders(), ")"
    learn = orders.insert
    types = (id(dict), id(list), id(tuple), id(str))
    words = (id(kind), *found, *types, id(orders), id(learn), *keys, id(end))
    header = (ctypes.c_int64 * len(words))(*words)
    result: FlattenArguments = make_builtin_function(
        code, ctypes.addressof(header), (header, kind, orders, learn, end)
    )
    return result


def define_flatten(module: LLVMModule) -> None:
    """Define `gather`, a built-in function of any number of containers."""
    _define_keys(module)
    _define_walk(module)
    f = LLVMFunction(module, "gather", ["ptr", "ptr", "i64"], "ptr")
    self, args, count = f.params
    facts = f.call("PyLong_AsVoidPtr", [self], "ptr")
    zero = f.value(0, "i64")
    leaves = f.call("PyList_New", [zero], "ptr")
    tokens = f.call("PyList_New", [zero], "ptr")
    good = f.variable("i1", leaves.is_("ne", 0) & tokens.is_("ne", 0))
    k = f.variable("i64", 0)
    with f.while_(lambda: k.get().is_("slt", count) & good.get()):
        each = f.load(f.offset(args, k.get(), "ptr"), "ptr")
        depth = f.value(MAX_CONTAINER_DEPTH, "i64")
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
                _drop_if_set(f, each)

        f.if_else(whole, give, drop)
    for each in (leaves, tokens):
        _drop_if_set(f, each)
    with f.when(answer.get().is_("eq", 0)):
        # Python raises the same error again.
        f.call("PyErr_Clear", [])
        none = python_object(f, "none")
        f.call("Py_IncRef", [none])
        answer.set(none)
    f.ret(answer.get())


def _define_keys(module: LLVMModule) -> None:
    """Define `keys(facts, dictionary) -> its order, borrowed; 0 if a key is not a string`."""
    f = LLVMFunction(module, "keys", ["ptr", "ptr"], "ptr", "nounwind", internal=True)
    facts, given = f.params
    count = f.call("PyDict_Size", [given], "i64")
    result = f.call("PyTuple_New", [count], "ptr")
    answer = f.variable("ptr", 0)
    good = f.variable("i1", result.is_("ne", 0))
    at, number = f.variable("i64", 0), f.variable("i64", 0)
    key, value = f.variable("ptr", 0), f.variable("ptr", 0)
    places = [each.address for each in (at, key, value)]
    text = _flatten_word(f, facts, "text")

    def going() -> LLVMValue:
        more = f.call("PyDict_Next", [given, *places], "i32").is_("ne", 0)
        return more & good.get() & number.get().is_("slt", count)

    with f.while_(going):
        good.set(_type_of_object(f, key.get()).is_("eq", text))
        with f.when(good.get()):
            f.call("Py_IncRef", [key.get()])
            f.call("PyTuple_SetItem", [result, number.get(), key.get()], "i32")
            number.set(number.get() + 1)
    with f.when(good.get() & number.get().is_("eq", count)):
        orders = _flatten_word(f, facts, "orders")
        answer.set(f.call("PyDict_GetItem", [orders, result], "ptr"))
        with f.when(answer.get().is_("eq", 0)):
            learned = f.call(
                "PyObject_CallOneArg", [_flatten_word(f, facts, "learn"), result], "ptr"
            )
            _drop_if_set(f, learned)
            answer.set(f.call("PyDict_GetItem", [orders, result], "ptr"))
    _drop_if_set(f, result)
    f.ret(answer.get())


def _define_walk(module: LLVMModule) -> None:
    """Define `walk(facts, x, leaves, tokens, depth) -> whether all contents are supported`."""
    f = LLVMFunction(module, "walk", ["ptr", "ptr", "ptr", "ptr", "i64"], "i1", "nounwind", True)
    facts, x, leaves, tokens, depth = f.params
    kind = _type_of_object(f, x)
    good = f.variable("i1", 0)

    def push(target: LLVMValue, each: LLVMValue) -> LLVMValue:
        return f.call("PyList_Append", [target, each], "i32").is_("eq", 0)

    def leaf() -> None:
        place = f.load(f.offset(facts, 8 * FLATTEN_WORDS.index("signature")), "i64")
        signature = f.load(f.offset(x, place), "ptr")
        good.set(push(leaves, x) & push(tokens, signature))

    def by_keys() -> None:
        order = f.call("keys", [facts, x], "ptr")
        with f.when(order.is_("ne", 0)):
            # The tokens keep the order alive in case it is evicted meanwhile.
            good.set(push(tokens, order))
            place = f.load(f.offset(facts, 8 * FLATTEN_WORDS.index("keys")), "i64")
            keys = f.load(f.offset(order, place), "ptr")

            def child(number: LLVMValue) -> LLVMValue:
                key = f.call("PyTuple_GetItem", [keys, number], "ptr")
                return f.call("PyDict_GetItem", [x, key], "ptr")

            inside(f.call("PyTuple_Size", [keys], "i64"), child)

    def in_order(word: str) -> None:
        good.set(push(tokens, kind))
        size = f.call(f"{word}_Size", [x], "i64")
        inside(size, lambda number: f.call(f"{word}_GetItem", [x, number], "ptr"))

    def inside(count: LLVMValue, child: Callable[[LLVMValue], LLVMValue]) -> None:
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
            good.set(push(tokens, _flatten_word(f, facts, "end")))

    def container() -> None:
        f.if_else(kind.is_("eq", _flatten_word(f, facts, "dict")), by_keys, sequence)

    def sequence() -> None:
        f.if_else(
            kind.is_("eq", _flatten_word(f, facts, "tuple")), lambda: in_order("PyTuple"), other
        )

    def other() -> None:
        f.if_else(
            kind.is_("eq", _flatten_word(f, facts, "list")), lambda: in_order("PyList"), nothing
        )

    def nothing() -> None:
        none = python_object(f, "none")
        with f.when(x.is_("eq", none)):
            good.set(push(tokens, none))

    with f.when(depth.is_("sgt", 0)):
        f.if_else(kind.is_("eq", _flatten_word(f, facts, "kind")), leaf, container)
    f.ret(good.get())


def _flatten_word(f: LLVMFunction, facts: LLVMValue, name: str) -> LLVMValue:
    return f.load(f.offset(facts, 8 * FLATTEN_WORDS.index(name)), "ptr")


def _type_of_object(f: LLVMFunction, value: LLVMValue) -> LLVMValue:
    return f.load(f.offset(value, TYPE_OFFSET), "ptr")


def _drop_if_set(f: LLVMFunction, value: LLVMValue) -> None:
    with f.when(value.is_("ne", 0)):
        f.call("Py_DecRef", [value])
