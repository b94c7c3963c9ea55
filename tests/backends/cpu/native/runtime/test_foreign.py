"""Where machine code looks for the elements of NumPy's arrays and of `bytes`."""

import ctypes

import numpy as np
import pytest

from shardir.backends.cpu.native.runtime import foreign, objects


def test_arrays_lie_as_numpy_promises() -> None:
    assert foreign.readable() == objects.readable()


def test_arrays_that_lie_otherwise_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DATA", "RANK", "SHAPE", "DTYPE", "FLAGS"):
        foreign.readable.cache_clear()
        with monkeypatch.context() as patch:
            patch.setattr(foreign, name, 16 if name != "DATA" else 24)
            assert not foreign.readable()
    foreign.readable.cache_clear()


def test_bytes_begin_where_they_are_looked_for() -> None:
    given = bytes(range(100))
    assert ctypes.string_at(id(given) + foreign.OCTETS, 100) == given
    assert ctypes.c_int64.from_address(id(given) + foreign.SIZE).value == 100
    assert np.frombuffer(given, np.uint8).ctypes.data == id(given) + foreign.OCTETS
