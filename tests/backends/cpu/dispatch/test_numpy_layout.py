"""The memory layout of NumPy arrays and `bytes` objects."""

import ctypes

import numpy as np
import pytest

from shardir.backends.cpu.dispatch import numpy_layout, object_layout


def test_the_numpy_layout_is_known() -> None:
    assert numpy_layout.has_known_layout() == object_layout.has_known_layout()


def test_another_numpy_layout_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DATA_OFFSET", "RANK_OFFSET", "SHAPE_OFFSET", "DTYPE_OFFSET", "FLAGS_OFFSET"):
        numpy_layout.has_known_layout.cache_clear()
        with monkeypatch.context() as patch:
            patch.setattr(numpy_layout, name, 16 if name != "DATA_OFFSET" else 24)
            assert not numpy_layout.has_known_layout()
    numpy_layout.has_known_layout.cache_clear()


def test_bytes_objects_have_the_expected_layout() -> None:
    content = bytes(range(100))
    assert ctypes.string_at(id(content) + numpy_layout.BYTES_DATA_OFFSET, 100) == content
    assert ctypes.c_int64.from_address(id(content) + numpy_layout.BYTES_SIZE_OFFSET).value == 100
    assert (
        np.frombuffer(content, np.uint8).ctypes.data == id(content) + numpy_layout.BYTES_DATA_OFFSET
    )
