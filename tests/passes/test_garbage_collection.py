"""Pauses of the garbage collector."""

import gc
from functools import partial

import pytest

from shardir.passes.garbage_collection import MIN_FROZEN_OBJECTS, paused_garbage_collection


def test_a_pause_ends_with_its_context() -> None:
    with paused_garbage_collection():
        assert not gc.isenabled()
        with paused_garbage_collection():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_a_pause_ends_with_an_error() -> None:
    with pytest.raises(ValueError, match="a pass failed"), paused_garbage_collection():
        raise ValueError("a pass failed")
    assert gc.isenabled()


def test_a_disabled_collector_stays_disabled() -> None:
    gc.disable()
    try:
        with paused_garbage_collection():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("new_objects", "frozen_objects", "expected"),
    [
        (MIN_FROZEN_OBJECTS + 1, 0, ["disable", "freeze", "unfreeze", "enable"]),
        (MIN_FROZEN_OBJECTS, 0, ["disable", "enable"]),
        # The program may have frozen objects that have to stay so.
        (MIN_FROZEN_OBJECTS + 1, 1, ["disable", "enable"]),
    ],
)
def test_the_objects_of_a_large_program_are_moved_to_the_oldest_generation(
    new_objects: int, frozen_objects: int, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test replaces the functions of `gc`: the tests themselves freeze objects."""
    called: list[str] = []
    monkeypatch.setattr(gc, "get_count", lambda: (new_objects, 0, 0))
    monkeypatch.setattr(gc, "get_freeze_count", lambda: frozen_objects)
    for name in ("disable", "freeze", "unfreeze", "enable"):
        monkeypatch.setattr(gc, name, partial(called.append, name))
    with paused_garbage_collection():
        pass
    assert called == expected
