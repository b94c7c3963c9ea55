"""Arrays read from and written to files, buffers and text."""

from io import BytesIO
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import shardir as sd
from shardir.frontend.errors import ArgumentError
from shardir.frontend.numpy import api as snp

X = np.arange(6, dtype="f").reshape(2, 3)


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.bool_, ml_dtypes.bfloat16])
def test_a_file_of_one_array(dtype: type, tmp_path: Path) -> None:
    array = snp.asarray(X.astype(dtype))
    snp.save(tmp_path / "x.npy", array)
    loaded = snp.load(tmp_path / "x.npy")
    assert loaded.dtype == array.dtype
    assert loaded.tolist() == array.tolist()


def test_a_file_of_many_arrays() -> None:
    file = BytesIO()
    snp.savez(file, snp.asarray(X), mask=X > 2)
    file.seek(0)
    loaded = snp.load(file)
    assert {name: each.tolist() for name, each in loaded.items()} == {
        "arr_0": X.tolist(),
        "mask": (X > 2).tolist(),
    }


@pytest.mark.parametrize("dtype", ["float8_e5m2", "float8_e4m3fn", "int4"])
def test_elements_of_a_file_may_need_their_type(dtype: str, tmp_path: Path) -> None:
    array, file = snp.asarray(X[0], dtype=dtype), tmp_path / "x.npy"
    snp.save(file, array)
    snp.savez(tmp_path / "x.npz", array, x=array)
    for each in (file, tmp_path / "x.npz"):
        with pytest.raises(ArgumentError) as caught:
            snp.load(each)
        assert str(caught.value).splitlines()[0] == (
            f"the elements in {each!r} have 8 bits and no type, as those of float8 and int4; "
            "name it: shardir.numpy.asarray(numpy.load(file).view(dtype))"
        )
    restored = snp.asarray(np.load(file).view(dtype))
    assert restored.dtype == array.dtype
    assert restored.tolist() == array.tolist()


def test_buffers_and_text() -> None:
    assert snp.frombuffer(X.tobytes(), np.float32).tolist() == X.ravel().tolist()
    assert snp.fromiter(range(4), int).tolist() == [0, 1, 2, 3]
    assert snp.fromstring("1 2 3", sep=" ").dtype == np.float32
    assert snp.from_dlpack(X).tolist() == X.tolist()


def test_text_of_an_array() -> None:
    array = snp.asarray(X)
    assert snp.array_repr(array) == repr(array)
    assert snp.array_str(array) == str(array)
    with snp.printoptions(precision=1):
        assert "0.3" in str(snp.asarray(0.3333))


def test_arrays_are_ndarrays() -> None:
    assert isinstance(snp.asarray(X), snp.ndarray)
    assert not isinstance(X, snp.ndarray)


def test_traced_values_are_ndarrays_too() -> None:
    @sd.jit
    def doubled(x: Any) -> Any:
        assert isinstance(x, snp.ndarray)
        return x * 2

    assert doubled(X).tolist() == (X * 2).tolist()
