"""The table of compiled calls, and the objects that determine the trace context."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

import shardir as sd
from shardir.frontend.dispatch import call_table
from shardir.frontend.dispatch.call_table import (
    CallTable,
    CompiledCall,
    context_objects,
    is_current,
    trace_context,
)
from shardir.op_rules import custom_rules
from shardir.op_rules.rule_notation import sharding_rule


@contextmanager
def nothing() -> Iterator[None]:
    yield


BLOCKS: dict[str, Any] = {
    "settings": lambda: sd.enable_x64(),
    "mesh": lambda: sd.make_mesh((2,), ("m",)),
    "rules": lambda: sd.rules({"a_custom_call": "i -> i"}),
    "device": lambda: sd.default_device(sd.devices()[1]),
}


@pytest.mark.parametrize("kind", BLOCKS)
@pytest.mark.parametrize("around", [None, *BLOCKS])
def test_each_block_changes_the_context(kind: str, around: str | None) -> None:
    enclosing: AbstractContextManager[Any] = nothing() if around is None else BLOCKS[around]()
    with enclosing:
        trace_context()
        outside = context_objects()
        assert is_current(outside)
        with BLOCKS[kind]():
            inside = context_objects()
            assert not is_current(outside)
            assert is_current(inside)
        assert is_current(outside)
        assert not is_current(inside)


def test_no_call_is_repeated_inside_of_a_trace() -> None:
    trace_context()
    found = context_objects()
    seen = []

    def inspect(x: Any) -> Any:
        seen.append(is_current(found))
        return x

    sd.jit(inspect)(1.0)
    assert seen == [False]
    assert is_current(found)


def test_no_call_is_repeated_while_rules_are_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    trace_context()
    monkeypatch.setitem(custom_rules._process, "a_custom_call", sharding_rule("i -> i"))
    assert not is_current(context_objects())


def test_settings_of_the_process_change_the_context() -> None:
    trace_context()
    found = context_objects()
    before = sd.config.enable_x64
    try:
        sd.config.update("enable_x64", not before)
        assert not is_current(found)
    finally:
        sd.config.update("enable_x64", before)
    assert not is_current(found)
    assert is_current(context_objects())


def test_a_full_table_is_cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_table, "MAX_CACHED_PROGRAMS", 3)
    table = CallTable()
    programs: list[Any] = [object(), object()]
    for k in range(3):
        table.add(k, CompiledCall(programs[k % 2], None, None, context_objects()))
    assert (len(table), table.num_programs()) == (3, 2)
    table.add(3, CompiledCall(programs[0], None, None, context_objects()))
    assert list(table) == [3]
