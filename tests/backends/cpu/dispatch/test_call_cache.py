"""The call cache, vectorcall classes, and memory blocks that native code creates."""

import copy
import gc
import sys
import weakref
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from shardir.backends.cpu.dispatch import call_cache, object_layout
from shardir.backends.cpu.dispatch.call_cache import CallTable
from shardir.backends.cpu.dispatch.small_blocks import block_maker, small_block_type
from shardir.backends.cpu.dispatch.tiered_code import launch_code
from shardir.backends.cpu.dispatch.vectorcall_class import has_vectorcall, vectorcall_class
from shardir.backends.cpu.threads.memory_pool import MemoryPool


def occupied_slots(table: CallTable) -> int:
    return sum(1 for each in table._slots if each)


def test_a_table_grows_and_is_cleared_at_its_limit() -> None:
    table = CallTable()
    for number in range(call_cache.MAX_CACHED_CALLS + 10):
        entry = call_cache._CacheEntry(())
        entry.words[0] = -(number * 0x123456789)
        table.add(number.to_bytes(8, "little"), entry)
        assert occupied_slots(table) == len(table)
        assert 2 * len(table) <= len(table._slots)
    assert len(table) == 10
    entry_after_clear = call_cache._CacheEntry(())
    table.add((call_cache.MAX_CACHED_CALLS).to_bytes(8, "little"), entry_after_clear)
    assert occupied_slots(table) == len(table) == 10
    table.clear()
    assert occupied_slots(table) == len(table) == 0


def test_an_entry_lives_until_it_is_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    table, held = CallTable(), NamedCallable("held")
    table.add(b"tokens", call_cache._CacheEntry((held,)))
    reference, build = weakref.ref(held), table._rehash
    del held
    is_alive: list[bool] = []

    def rehash_and_check(self: CallTable) -> None:
        is_alive.append(reference() is not None)
        build()
        is_alive.append(reference() is not None)

    monkeypatch.setattr(CallTable, "_rehash", rehash_and_check)
    table.add(b"tokens", call_cache._CacheEntry(()))
    assert is_alive == [True, True]
    assert reference() is None


@pytest.mark.parametrize("change", ["_rehash", "_insert_slot"])
@pytest.mark.parametrize("clearing", [True, False])
def test_an_entry_survives_an_interrupted_update(
    clearing: bool, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    table, held = CallTable(), NamedCallable("held")
    table.add(b"tokens", call_cache._CacheEntry((held,)))
    reference, slots = weakref.ref(held), [*table._slots]
    del held
    with monkeypatch.context() as patched, suppress(KeyboardInterrupt):
        patched.setattr(CallTable, change, interrupt)
        if clearing:
            table.clear()
        else:
            table.add(b"tokens", call_cache._CacheEntry(()))
    if [*table._slots] == slots:
        assert reference() is not None
    table.add(b"tokens", call_cache._CacheEntry(()))
    table.add(b"tokens", call_cache._CacheEntry(()))
    assert reference() is None
    assert occupied_slots(table) == len(table) == 1


def test_failing_inserts_are_rarely_retried() -> None:
    table = CallTable()
    assert all(table.should_insert() for _ in range(100))
    table.failed_inserts = call_cache.INSERT_INTERVAL_CALLS + 1
    attempts = [table.should_insert() for _ in range(10 * call_cache.INSERT_INTERVAL_CALLS)]
    assert sum(attempts) == 10


class NamedCallable:
    """A callable that returns its name and arguments."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self.name, args, options


def test_a_vectorcall_class_behaves_like_the_original() -> None:
    kind = vectorcall_class(NamedCallable)
    instance = kind("first")
    assert instance(1, a=2) == ("first", (1,), {"a": 2})
    assert instance(*[1], **{"a": 2}) == ("first", (1,), {"a": 2})
    assert (kind.__name__, kind.__doc__) == ("NamedCallable", NamedCallable.__doc__)
    assert has_vectorcall(instance)
    assert not has_vectorcall(NamedCallable("other"))
    instance.self = instance  # type: ignore[attr-defined]
    finalized: list[int] = []
    weakref.finalize(instance, finalized.append, 1)
    del instance
    gc.collect()
    assert finalized == [1]


def test_classes_are_unchanged_on_an_unknown_python(monkeypatch: pytest.MonkeyPatch) -> None:
    object_layout.has_known_layout.cache_clear()
    try:
        monkeypatch.setattr(sys, "abiflags", "t")
        assert vectorcall_class(NamedCallable) is NamedCallable
        assert not has_vectorcall(NamedCallable("first"))
    finally:
        monkeypatch.undo()
        object_layout.has_known_layout.cache_clear()


def test_small_blocks_return_to_their_pool() -> None:
    code = launch_code()
    kind = small_block_type(code["retire"])
    assert kind is not None
    pool = MemoryPool(1 << 30)
    pool.set_small_block_type(kind, block_maker(code["hand"]))
    block = pool.allocate(1000)
    assert type(block) is kind
    assert pool.may_be_written(block)
    assert (block.nbytes, block.address % 64) == (1000, 0)
    address, used = block.address, pool.statistics().in_use
    view = np.asarray(block)
    view[:] = 3
    with pytest.raises(TypeError, match="a memory block cannot be copied"):
        copy.copy(block)
    del block
    assert pool.statistics().in_use == used
    del view
    gc.collect()
    found = pool.statistics()
    assert (found.in_use, found.idle) == (0, used)
    other = pool.allocate(990)
    assert (other.address, other.nbytes) == (address, 990)
    assert pool.allocate(5 << 20).address != address
    make: Any = kind
    with pytest.raises(TypeError):
        make()
    with pytest.raises(TypeError):
        block_maker(code["hand"])(kind)
