"""Tables of answers, classes that machine code is called for, and blocks that it makes."""

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


def filled(table: CallTable) -> int:
    return sum(1 for each in table._slots if each)


def test_a_table_grows_and_forgets() -> None:
    table = CallTable()
    for number in range(call_cache.MAX_CACHED_CALLS + 10):
        line = call_cache._CacheEntry(())
        line.words[0] = -(number * 0x123456789)
        table.add(number.to_bytes(8, "little"), line)
        assert filled(table) == len(table)
        assert 2 * len(table) <= len(table._slots)
    assert len(table) == 10
    again = call_cache._CacheEntry(())
    table.add((call_cache.MAX_CACHED_CALLS).to_bytes(8, "little"), again)
    assert filled(table) == len(table) == 10
    table.clear()
    assert filled(table) == len(table) == 0


def test_a_line_is_kept_as_long_as_it_can_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    table, held = CallTable(), Counted("held")
    table.add(b"tokens", call_cache._CacheEntry((held,)))
    there, build = weakref.ref(held), table._rehash
    del held
    seen: list[bool] = []

    def look(self: CallTable) -> None:
        seen.append(there() is not None)
        build()
        seen.append(there() is not None)

    monkeypatch.setattr(CallTable, "_rehash", look)
    table.add(b"tokens", call_cache._CacheEntry(()))
    assert seen == [True, True]
    assert there() is None


@pytest.mark.parametrize("change", ["_rehash", "_insert_slot"])
@pytest.mark.parametrize("clearing", [True, False])
def test_a_line_is_kept_where_a_handler_ended_a_change(
    clearing: bool, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    table, held = CallTable(), Counted("held")
    table.add(b"tokens", call_cache._CacheEntry((held,)))
    there, places = weakref.ref(held), [*table._slots]
    del held
    with monkeypatch.context() as patched, suppress(KeyboardInterrupt):
        patched.setattr(CallTable, change, interrupt)
        if clearing:
            table.clear()
        else:
            table.add(b"tokens", call_cache._CacheEntry(()))
    if [*table._slots] == places:
        assert there() is not None
    table.add(b"tokens", call_cache._CacheEntry(()))
    table.add(b"tokens", call_cache._CacheEntry(()))
    assert there() is None
    assert filled(table) == len(table) == 1


def test_what_fails_is_seldom_tried() -> None:
    table = CallTable()
    assert all(table.should_insert() for _ in range(100))
    table.failed_inserts = call_cache.INSERT_INTERVAL_CALLS + 1
    tried = [table.should_insert() for _ in range(10 * call_cache.INSERT_INTERVAL_CALLS)]
    assert sum(tried) == 10


class Counted:
    """Says what it is called with."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self.name, args, options


def test_a_quick_class_is_as_the_class() -> None:
    kind = vectorcall_class(Counted)
    thing = kind("mine")
    assert thing(1, a=2) == ("mine", (1,), {"a": 2})
    assert thing(*[1], **{"a": 2}) == ("mine", (1,), {"a": 2})
    assert (kind.__name__, kind.__doc__) == ("Counted", Counted.__doc__)
    assert has_vectorcall(thing)
    assert not has_vectorcall(Counted("other"))
    thing.self = thing  # type: ignore[attr-defined]
    gone: list[int] = []
    weakref.finalize(thing, gone.append, 1)
    del thing
    gc.collect()
    assert gone == [1]


def test_in_another_python_a_class_stays_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    object_layout.has_known_layout.cache_clear()
    try:
        monkeypatch.setattr(sys, "abiflags", "t")
        assert vectorcall_class(Counted) is Counted
        assert not has_vectorcall(Counted("mine"))
    finally:
        monkeypatch.undo()
        object_layout.has_known_layout.cache_clear()


def test_small_blocks_go_home() -> None:
    code = launch_code()
    kind = small_block_type(code["retire"])
    assert kind is not None
    mine = MemoryPool(1 << 30)
    mine.set_small_block_type(kind, block_maker(code["hand"]))
    block = mine.allocate(1000)
    assert type(block) is kind
    assert mine.may_be_written(block)
    assert (block.nbytes, block.address % 64) == (1000, 0)
    address, used = block.address, mine.statistics().in_use
    view = np.asarray(block)
    view[:] = 3
    with pytest.raises(TypeError, match="a memory block cannot be copied"):
        copy.copy(block)
    del block
    assert mine.statistics().in_use == used
    del view
    gc.collect()
    found = mine.statistics()
    assert (found.in_use, found.idle) == (0, used)
    other = mine.allocate(990)
    assert (other.address, other.nbytes) == (address, 990)
    assert mine.allocate(5 << 20).address != address
    make: Any = kind
    with pytest.raises(TypeError):
        make()
    with pytest.raises(TypeError):
        block_maker(code["hand"])(kind)
