"""Native flattening of containers of arrays, and the memory layout of Python objects."""

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


def make_flatten_function() -> FlattenArguments:
    made = make_flatten(launch_code()["gather"], Leaf)
    assert made is not None
    return made


FLATTEN: Callable[..., Any] = make_flatten_function()
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
def test_flattening_gives_leaves_in_order_and_distinct_keys(one: Any, other: Any) -> None:
    found = [FLATTEN(one), FLATTEN(other)]
    for each, (leaves, _) in zip((one, other), found, strict=True):
        assert [*map(id, leaves)] == [*map(id, tree.leaves(each))]
    same_signature = tree.structure(one) == tree.structure(other)
    same_signature = same_signature and [x.signature for x in found[0][0]] == [
        x.signature for x in found[1][0]
    ]
    assert (found[0][1] == found[1][1]) == same_signature
    assert FLATTEN(one, other)[0] == [*found[0][0], *found[1][0]]


def test_unknown_containers_and_leaves_are_left_to_python() -> None:
    pair = namedtuple("pair", "a b")
    x = LEAVES[0]
    unknown = [
        1, "text", [1], {"a": 1}, {1: x}, {"a": x, 2: x}, {("a",): x}, {x}, pair(x, x),
        OrderedDict(a=x), type("Mine", (dict,), {})(), object(), Leaf,
    ]  # fmt: skip
    for each in unknown:
        assert FLATTEN(each) is None
        assert FLATTEN((x, [each])) is None
    deep: Any = x
    for _ in range(MAX_CONTAINER_DEPTH - 1):
        deep = [deep]
    assert FLATTEN(deep)[0] == [x]
    assert FLATTEN([deep]) is None
    self_containing: list[Any] = []
    self_containing.append(self_containing)
    assert FLATTEN(self_containing) is None


def test_flattening_keeps_reference_counts() -> None:
    x = LEAVES[0]
    inner = {"b": x, "a": (x, None, [])}
    nested = [inner, {"b": x}]
    referenced = [x, x.signature, inner, nested, ")", 1000]
    none_references = sys.getrefcount(None)
    before = [sys.getrefcount(each) for each in referenced]
    for _ in range(100):
        assert FLATTEN(nested) is not None
        assert FLATTEN([nested, 1000]) is None
        assert FLATTEN([nested, {"b": 1000}]) is None
    assert [sys.getrefcount(each) for each in referenced] == before
    assert abs(sys.getrefcount(None) - none_references) < 100


def test_the_cache_of_key_orders_is_bounded() -> None:
    flatten: Callable[..., Any] = make_flatten_function()
    x = LEAVES[0]
    for number in range(KeyOrders.MAX_KEY_ORDERS + 100):
        found, tokens = flatten({f"b{number}": x, f"a{number}": LEAVES[1]})
        assert found == [LEAVES[1], x]
        # The insertion order does not matter.
        assert flatten({f"a{number}": LEAVES[1], f"b{number}": x}) == (found, tokens)


def test_slot_offsets_are_the_addresses_of_attributes() -> None:
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


def test_flattening_is_disabled_on_an_unknown_python(monkeypatch: pytest.MonkeyPatch) -> None:
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

    def __init__(self, referenced: object) -> None:
        super().__init__("signature")
        self.held = referenced


@vectorcall_class
class Wait:
    def __call__(self, x: Any) -> str:
        return "asked Python"


def test_block_until_ready_calls_python_for_deleted_arrays() -> None:
    wait: Any = Wait()
    assert block_until_ready.install_block_until_ready(call_cache_code()["wait"], Holder, wait)
    array = Holder(Storage.of(np.ones(2)))
    supported: list[Any] = [
        array,
        None,
        (),
        [],
        {},
        {"a": array, 2: [array, (None, array)]},
        [[array]],
    ]
    for each in supported:
        assert wait(each) is each
    deep: Any = array
    for _ in range(MAX_CONTAINER_DEPTH):
        deep = (deep,)
    unsupported: Any
    for unsupported in (
        Holder(None),
        Holder([np.ones(2)]),
        1,
        np.ones(2),
        OrderedDict(a=array),
        deep,
    ):
        for each in (
            unsupported,
            [array, unsupported],
            {"a": array, "b": (unsupported,)},
            (unsupported, array),
        ):
            assert wait(each) == "asked Python"
    inner = [array, {"a": array}]
    before = [sys.getrefcount(each) for each in (array, inner, inner[1])]
    for _ in range(100):
        assert wait([inner, inner])
        assert wait([inner, 1]) == "asked Python"
    assert [sys.getrefcount(each) for each in (array, inner, inner[1])] == before


def test_repeated_installations_of_block_until_ready_share_one_header() -> None:
    first = block_until_ready._ready_header(Holder, Wait.__call__)
    wait: Any = Wait()
    for _ in range(3):
        assert block_until_ready.install_block_until_ready(call_cache_code()["wait"], Holder, wait)
        gc.collect()
        assert wait(None) is None
    assert block_until_ready._ready_header(Holder, Wait.__call__) is first
