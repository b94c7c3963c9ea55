"""Where machine code looks for the elements of NumPy's arrays and of `bytes`."""

import ctypes

import numpy as np
import pytest

from shardir.backends.cpu.dispatch import numpy_layout, object_layout


def test_arrays_lie_as_numpy_promises() -> None:
    assert numpy_layout.has_known_layout() == object_layout.has_known_layout()


def test_arrays_that_lie_otherwise_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DATA_OFFSET", "RANK_OFFSET", "SHAPE_OFFSET", "DTYPE_OFFSET", "FLAGS_OFFSET"):
        numpy_layout.has_known_layout.cache_clear()
        with monkeypatch.context() as patch:
            patch.setattr(numpy_layout, name, 16 if name != "DATA_OFFSET" else 24)
            assert not numpy_layout.has_known_layout()
    numpy_layout.has_known_layout.cache_clear()


def test_bytes_begin_where_they_are_looked_for() -> None:
    given = bytes(range(100))
    assert ctypes.string_at(id(given) + numpy_layout.BYTES_DATA_OFFSET, 100) == given
    assert ctypes.c_int64.from_address(id(given) + numpy_layout.BYTES_SIZE_OFFSET).value == 100
    assert np.frombuffer(given, np.uint8).ctypes.data == id(given) + numpy_layout.BYTES_DATA_OFFSET
