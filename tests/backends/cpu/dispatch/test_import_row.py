"""The imports of NumPy arrays that native code makes."""

import numpy as np
import pytest

from shardir.backends.cpu.dispatch.launch import ArrayImport, import_row


@pytest.mark.parametrize(
    ("source", "dtype", "shape", "is_native"),
    [
        ("bool", "bool", (3,), True),
        ("float32", "float32", (3,), True),
        ("float64", "float32", (3,), True),
        ("int64", "int32", (3,), True),
        # Python code makes the other conversions, and imports large arrays.
        ("uint8", "float32", (3,), False),
        ("float64", "float16", (3,), False),
        ("float64", "int32", (3,), False),
        ("float32", "float32", (1 << 28,), False),
    ],
)
def test_native_code_imports_small_arrays_of_few_types(
    source: str, dtype: str, shape: tuple[int, ...], is_native: bool
) -> None:
    entry = ArrayImport(shape, np.dtype(source), np.dtype(dtype))
    assert (import_row(entry) is not None) == is_native
