"""Pauses of the garbage collector."""

import gc

import pytest

from shardir.passes.garbage_collection import paused_garbage_collection


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
