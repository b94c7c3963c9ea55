"""Arrays out of containers by machine code, and how objects lie in memory."""

import ctypes
import gc
import sys
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from shardir.backends.cpu.dispatch import block_until_ready, object_layout
from shardir.backends.cpu.dispatch.flatten_arguments import (
    MAX_CONTAINER_DEPTH,
    FlattenArguments,
    KeyOrders,
    make_flatten,
)
from shardir.backends.cpu.dispatch.object_layout import slot_offsets
from shardir.backends.cpu.dispatch.tiered_code import call_cache_code, launch_code
from shardir.backends.cpu.dispatch.vectorcall_class import vectorcall_class
from shardir.backends.storage import Storage
from shardir.frontend.pytree import tree


class Leaf:
    __slots__ = ("other", "signature")

    def __init__(self, signature: object) -> None:
        self.signature = signature


def gather_leaves() -> FlattenArguments:
    made = make_flatten(launch_code()["gather"], Leaf)
    assert made is not None
    return made


GATHER: Callable[..., Any] = gather_leaves()
LEAVES = [Leaf("first"), Leaf("second"), Leaf(3)]
trees = st.recursive(
    st.sampled_from([*LEAVES, None]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.sampled_from("dcba"), inner, max_size=3),
    ),
    max_leaves=8,
)


@given(trees, trees)
def test_leaves_come_in_order_and_tokens_tell_calls_apart(one: Any, other: Any) -> None:
    found = [GATHER(one), GATHER(other)]
    for each, (leaves, _) in zip((one, other), found, strict=True):
        assert [*map(id, leaves)] == [*map(id, tree.leaves(each))]
    alike = tree.structure(one) == tree.structure(other)
    alike = alike and [x.signature for x in found[0][0]] == [x.signature for x in found[1][0]]
    assert (found[0][1] == found[1][1]) == alike
    assert GATHER(one, other)[0] == [*found[0][0], *found[1][0]]


def test_what_it_does_not_know_is_left_to_python() -> None:
    pair = namedtuple("pair", "a b")
    x = LEAVES[0]
    unknown = [
        1, "text", [1], {"a": 1}, {1: x}, {"a": x, 2: x}, {("a",): x}, {x}, pair(x, x),
        OrderedDict(a=x), type("Mine", (dict,), {})(), object(), Leaf,
    ]  # fmt: skip
    for each in unknown:
        assert GATHER(each) is None
        assert GATHER((x, [each])) is None
    deep: Any = x
    for _ in range(MAX_CONTAINER_DEPTH - 1):
        deep = [deep]
    assert GATHER(deep)[0] == [x]
    assert GATHER([deep]) is None
    endless: list[Any] = []
    endless.append(endless)
    assert GATHER(endless) is None


def test_nothing_is_held_or_let_go() -> None:
    x = LEAVES[0]
    inner = {"b": x, "a": (x, None, [])}
    whole = [inner, {"b": x}]
    held = [x, x.signature, inner, whole, ")", 1000]
    nothing = sys.getrefcount(None)
    before = [sys.getrefcount(each) for each in held]
    for _ in range(100):
        assert GATHER(whole) is not None
        assert GATHER([whole, 1000]) is None
        assert GATHER([whole, {"b": 1000}]) is None
    assert [sys.getrefcount(each) for each in held] == before
    assert abs(sys.getrefcount(None) - nothing) < 100


def test_orders_of_keys_are_not_kept_for_ever() -> None:
    gather: Callable[..., Any] = gather_leaves()
    x = LEAVES[0]
    for number in range(KeyOrders.MAX_KEY_ORDERS + 100):
        found, tokens = gather({f"b{number}": x, f"a{number}": LEAVES[1]})
        assert found == [LEAVES[1], x]
        # The order in which they were put in does not matter.
        assert gather({f"a{number}": LEAVES[1], f"b{number}": x}) == (found, tokens)


def test_offsets_are_those_of_slots() -> None:
    x = Leaf("here")
    assert x.signature == "here"
    found = slot_offsets(x, ("signature", "other"))
    assert found is not None
    assert ctypes.c_uint64.from_address(id(x) + found[0]).value == id(x.signature)
    assert x.signature == "here"
    assert (
        slot_offsets(type("Plain", (), {"a": 1, "signature": property(id)})(), ("signature",))
        is None
    )


def test_another_kind_of_python_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    object_layout.has_known_layout.cache_clear()
    try:
        monkeypatch.setattr(sys, "abiflags", "t")
        assert not object_layout.has_known_layout()
        assert slot_offsets(Leaf("x"), ("signature",)) is None
        assert make_flatten(launch_code()["gather"], Leaf) is None
    finally:
        monkeypatch.undo()
        object_layout.has_known_layout.cache_clear()
    assert object_layout.has_known_layout()


class Holder(Leaf):
    __slots__ = ("held",)

    def __init__(self, held: object) -> None:
        super().__init__("signature")
        self.held = held


@vectorcall_class
class Wait:
    def __call__(self, x: Any) -> str:
        return "asked Python"


def test_waiting_asks_python_where_arrays_hold_no_numbers() -> None:
    wait: Any = Wait()
    assert block_until_ready.install_block_until_ready(call_cache_code()["wait"], Holder, wait)
    there = Holder(Storage.of(np.ones(2)))
    good: list[Any] = [there, None, (), [], {}, {"a": there, 2: [there, (None, there)]}, [[there]]]
    for each in good:
        assert wait(each) is each
    deep: Any = there
    for _ in range(MAX_CONTAINER_DEPTH):
        deep = (deep,)
    gone: Any
    for gone in (Holder(None), Holder([np.ones(2)]), 1, np.ones(2), OrderedDict(a=there), deep):
        for each in (gone, [there, gone], {"a": there, "b": (gone,)}, (gone, there)):
            assert wait(each) == "asked Python"
    inner = [there, {"a": there}]
    before = [sys.getrefcount(each) for each in (there, inner, inner[1])]
    for _ in range(100):
        assert wait([inner, inner])
        assert wait([inner, 1]) == "asked Python"
    assert [sys.getrefcount(each) for each in (there, inner, inner[1])] == before


def test_threads_that_see_to_waiting_at_once_have_machine_code_work_by_one_header() -> None:
    first = block_until_ready._ready_header(Holder, Wait.__call__)
    wait: Any = Wait()
    for _ in range(3):
        assert block_until_ready.install_block_until_ready(call_cache_code()["wait"], Holder, wait)
        gc.collect()
        assert wait(None) is None
    assert block_until_ready._ready_header(Holder, Wait.__call__) is first
